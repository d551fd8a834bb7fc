cimport cython
from ..core.handle cimport Handle

@cython.locals(tensor=Handle)
cpdef object wrap(object data, object node=*, object version=*)
