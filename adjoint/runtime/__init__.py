"""Eager execution: each op runs at once, and what gradients need is recorded."""
