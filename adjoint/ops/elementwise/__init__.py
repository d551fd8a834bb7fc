"""Ops on each element, or on pairs of them."""
