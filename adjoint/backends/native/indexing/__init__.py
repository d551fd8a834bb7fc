"""Elements moved, joined and ranked by generated code."""
