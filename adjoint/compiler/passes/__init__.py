"""Passes: rewrite a program's graph into an equal and cheaper one."""
