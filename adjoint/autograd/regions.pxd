cimport cython
from ..core.mode cimport Mode
from ..core.tensor_base cimport TensorBase
from ..runtime.cells cimport Cell, GraphState, missing_of, pass_over, versions_of
from ..runtime.tensors cimport wrap
from .recording cimport record_cell

cdef class Region:
    cdef public object declared, wanted, seen, tape
    cdef public tuple statics, inputs, attached, flows, outputs, cells
    cdef public bint usable
    cdef object __weakref__
    cpdef list missing(self, dict promised)
    cpdef bint is_due(self, Cell cell) except -1
    @cython.locals(results=list, changed=list, arrays=list, outputs=list, cell=Cell, output=Cell)
    cpdef run(self, GraphState state)
    @cython.locals(cell=Cell, n=Py_ssize_t)
    cdef object _assert_agree(self, list outputs, list results)
    @cython.locals(leaves=dict, args=list, x=TensorBase, n=Py_ssize_t, mode=Mode)
    cdef list _call(self, list arrays)
