cimport cython
from libc.math cimport M_PI as pi, NAN as nan, exp, isinf, lgamma, log, log1p, sqrt
from numpy cimport PyArray_DATA, import_array

ctypedef double* p_double

cdef double _LARGEST, _EPS

@cython.locals(a=p_double, x=p_double, y=p_double, i=Py_ssize_t, count=Py_ssize_t)
cpdef object tails(object shapes, object ends, bint complement)
@cython.locals(low=double, high=double, weight=double, part=double)
cdef double tail(double a, double x, bint complement) except? -1
@cython.locals(part=double, power=double, w=double, rest=double)
cdef double _density(double a, double x) except? -1
@cython.locals(total=double, term=double, at=double)
cdef double _series(double a, double x) except? -1
@cython.locals(z=double, step=double, before=double, top=double, low_before=double, low=double,
               value=double, last=double, factor=double, spare=double)
cdef double _fraction(double a, double x) except? -1
