"""A module that functions in test_closed_world.py import while they run."""

SCALE = 2.0


def of_scale():
    """What the module's variable is."""
    return SCALE
