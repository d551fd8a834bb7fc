"""Primitives (one class each, one file per family) and their compositions."""
