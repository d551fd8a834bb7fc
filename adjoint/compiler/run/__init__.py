"""Calls of a compiled program on memory that is bound once."""
