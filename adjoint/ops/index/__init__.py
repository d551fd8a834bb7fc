"""Ops that select and place elements."""
