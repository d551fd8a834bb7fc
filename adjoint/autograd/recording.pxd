cimport cython
from ..core.mode cimport Mode
from ..core.tensor_base cimport TensorBase
from ..runtime.tensors cimport wrap
from ..runtime.cells cimport Cell, GraphState, new_cell

@cython.locals(values=list, cut=list, i=Py_ssize_t, made=Cell, whole=Cell, cell=Cell, mode=Mode)
cpdef object record_cell(GraphState state, object op, tuple inputs)

@cython.locals(first=Cell, second=Cell, made=Cell, mode=Mode)
cpdef object record_pair(object op, dict dtypes, bint boolean, object input, object other)

@cython.locals(cell=Cell, made=Cell, mode=Mode)
cpdef object record_one(object op, dict dtypes, object input)

cdef bint _may_have_gradient(Cell cell, object x) except -1
cdef bint _is_special(Cell cell, TensorBase x) except -1
