"""Ops that reduce, scan or order along dimensions."""
