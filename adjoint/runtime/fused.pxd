from ..core.overrides cimport overridden
