"""Recurrent layers by generated code."""
