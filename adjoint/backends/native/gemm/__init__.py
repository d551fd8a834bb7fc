"""Matrix products, and what is blocked on them."""
