from ..core.overrides cimport overridden
from .dispatch cimport run_known
