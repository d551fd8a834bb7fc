"""Attention by generated code."""
