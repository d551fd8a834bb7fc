"""Fourier transforms, and functions made of them."""
