"""Sparse tensors: their patterns, what ops mean for them, and their functions. Nothing here is
imported before the first of them.
"""
