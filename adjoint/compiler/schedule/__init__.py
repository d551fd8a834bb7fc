"""Schedules: kernels and library calls in order, with their buffers planned in one arena."""
