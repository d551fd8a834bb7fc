"""Reports: what was compiled, stage by stage, as text and as drawings."""
