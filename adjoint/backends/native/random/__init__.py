"""NumPy's random numbers by generated code."""
