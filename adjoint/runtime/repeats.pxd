cimport cython
from .cells cimport Cell, GraphState

@cython.locals(repeating=list, stale=list, met=set, cell=Cell, above=Cell, kept=Cell, planned=bint)
cdef list _repeating_above(GraphState state, list needed)

@cython.locals(stale=list, met=set, changing=set, seen=tuple, cell=Cell, above=Cell, i=Py_ssize_t)
cdef set _changing(list repeating)
