"""Engines, which carry buffers between processes: adapters to libraries that exist. None is
imported before it is asked for.
"""
