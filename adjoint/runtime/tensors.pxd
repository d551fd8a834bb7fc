cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.arrays cimport new_tensor

@cython.locals(tensor=TensorBase)
cpdef object wrap(object data, object node=*, object version=*)
