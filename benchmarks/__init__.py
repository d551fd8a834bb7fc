"""Benchmarks: every figure is a ratio to a peer, measured interleaved in one process."""
