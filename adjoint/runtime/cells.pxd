cimport cython
from .chains cimport Chain, given
from .lazy cimport LazyValue
from ..core.mode cimport Mode

cdef class GraphState:
    cdef public object lock
    cdef public Py_ssize_t blocks, changed_last, edits, runs, reads, set_last, written_first, written_last, rolled_back
    cdef public object observer
    cdef public list roots, edited, derived, foreign, written, repeating, calling, unset
    cdef public object sources, stamp, undo, before_read, before_run, owner
    cdef public dict chains
    cdef public set said
    cdef public bint draws_frozen, eventful, fleeting, _cutoff, _places
    cdef public Py_ssize_t _planning
    cdef public tuple _scope
    cdef public object _branch
    cdef object __weakref__

cdef class Rare:
    cdef public object about, extra, handle, region
    cdef public tuple cut, repeats
    cdef public bint cutoff, given
    cdef public Py_ssize_t planned

cdef class Cell(LazyValue):
    cdef public GraphState state
    cdef public tuple cells
    cdef public list users
    cdef public object reference, seen, version
    cdef public bint fleeting, read, stale, tracked
    cdef public Py_ssize_t order
    cdef public Rare rare

cdef class SourceCell(Cell):
    cdef public object content, follows
    cdef public Py_ssize_t rewritten

@cython.locals(stack=list, arrays=list, cells=tuple, inputs=tuple, stale=bint, ready=bint,
               chaining=bint, cutoff=bint, fleeting=bint, promised=dict, cell=Cell, above=Cell, rare=Rare)
cdef object _walk(GraphState state, list needed, Chain chain, object profiler)

@cython.locals(mode=Mode)
cpdef object refresh(object targets)

@cython.locals(reached=list, cell=Cell)
cpdef object push(Cell changed)

@cython.locals(cell=Cell, rare=Rare)
cpdef object release(object cells)

@cython.locals(missing=list, cell=Cell)
cpdef list missing_of(tuple cells, dict promised)

@cython.locals(versions=list, cell=Cell)
cpdef tuple versions_of(tuple cells)

@cython.locals(passed=list, cell=Cell)
cpdef list pass_over(tuple references)

@cython.locals(cell=Cell)
cpdef Cell new_cell(GraphState state, object op, tuple inputs, object shape, object dtype, object device)

cdef object _begin(Cell cell, GraphState state, object op, tuple inputs, object shape, object dtype,
                   object device)

@cython.locals(cells=list, users=list, above=Cell)
cdef tuple _entered(Cell cell, tuple inputs)
