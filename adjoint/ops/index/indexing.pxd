from ...core.overrides cimport concerns
from ...eager.dispatch cimport apply_view

cdef object _simple(tuple shape, object index)
