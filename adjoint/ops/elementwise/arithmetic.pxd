from ...core.overrides cimport concerns

