"""Tracing: runs a function once and records it, with what it reads and writes, as a program."""
