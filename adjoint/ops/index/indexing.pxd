from ...core.overrides cimport concerns
from ...runtime.dispatch cimport apply_view

cdef object _simple(tuple shape, object index)
