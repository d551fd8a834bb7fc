cimport cython
from ..core.handle cimport Handle
from .arrays cimport new_handle

@cython.locals(tensor=Handle)
cpdef object wrap(object data, object node=*, object version=*)
