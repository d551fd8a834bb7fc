"""Ops that arrange elements: views, joins, copies."""
