from .dispatch cimport run_known
