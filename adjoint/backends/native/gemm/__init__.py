"""Matrix products, and algorithms blocked on them."""
