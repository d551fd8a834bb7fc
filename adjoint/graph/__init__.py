"""Nodes, versions and views: how values came to be. Never mentions gradients."""
