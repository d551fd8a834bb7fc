"""Guards: conditions under which a program holds, noted at its capture, checked at a call."""
