cimport cython
from ..core.handle cimport Handle
from ..core.mode cimport Mode
from ..eager.arrays cimport Launcher, copy_memory, references, signature
from ..graph.node cimport Node, Version, View, new_node
from ..program.executable cimport Executable, find

@cython.locals(y=Handle, handle=Handle)
cpdef object made(object op, tuple inputs, object result, bint records, Mode mode)
@cython.locals(found=Executable, arrays=list, mode=Mode)
cpdef object run_known(object op, tuple inputs)
@cython.locals(version=Version, mode=Mode)
cpdef bint copied(object x, object y, object name) except -1
@cython.locals(saved=list, changed=bint, kind=str, index=Py_ssize_t, place=Py_ssize_t,
               version=Version, saving=tuple)
cpdef Node record(object op, tuple inputs, tuple parents, object y, Mode mode)
cpdef tuple parents_of(tuple inputs)
@cython.locals(tensor=Handle)
cpdef object wrap(object data, object node=*, object version=*)

@cython.locals(y=Handle, handle=Handle)
cpdef object viewed(object op, object x, object result, Mode mode)
@cython.locals(version=Version, before=View)
cpdef object mark_view(object y, object x, object op, object refusal=*)
@cython.locals(version=Version, views=list)
cpdef object register_view(object y)
