"""Loops whose body is one function: values in vector registers, nothing called in a turn."""
