cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from ..core.arrays cimport references
from ..runtime.node cimport Extra, Leaf, Node, Target, Version
from ..runtime.tensors cimport wrap
from ..runtime.writes cimport write_known

@cython.locals(awaited=dict, stack=list, node=Target)
cdef dict _awaited(object roots)
@cython.locals(seen=set, stack=list, awaited=dict, node=Target, leads=bint)
cdef dict _awaited_between(object roots, object goals)
@cython.locals(pending=dict, reached=dict, leaves=list, heap=list, node=Node, parents=tuple,
               extra=Extra, saved=tuple, left=Py_ssize_t, place=Py_ssize_t, count=Py_ssize_t,
               target=Target)
cdef dict _walk(object roots, dict awaited, object goals, bint retain_graph, bint create_graph,
                bint accumulate, bint anomaly, object observer)
