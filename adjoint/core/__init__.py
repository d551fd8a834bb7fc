"""Specs, dtypes, devices, the Op contract, errors and switches; imports nothing else of adjoint."""
