cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport (
    INFINITY as inf, M_PI as pi, ceil, cos, exp, fabs, floor, lgamma, log, log1p, pow, sin, sqrt, tan,
)
from libc.stdint cimport int64_t, uint32_t, uint64_t
from numpy cimport PyArray_DATA, import_array
from numpy.random cimport bitgen_t

ctypedef bitgen_t* p_bitgen
ctypedef int64_t* p_int64
ctypedef double* p_double
ctypedef float* p_float

cdef int _FILL, _FEW, _BOXES
cdef int _NORMAL, _LOG_NORMAL, _EXPONENTIAL, _GEOMETRIC, _CAUCHY, _POISSON, _GAMMA, _BINOMIAL
cdef uint64_t _LOW
cdef double _LEAST, _LEAST_SINGLE, _TWO_PI

cdef class Twister:
    cdef object _bits, _draws, _lock, _other
    cdef double _spare
    cdef bint _kept, _unused
    cdef bitgen_t* _source

    @cython.locals(at=p_int64, i=Py_ssize_t, k=Py_ssize_t)
    cpdef object permutation(self, Py_ssize_t count, object kind, object _)

    @cython.locals(x1=p_double, x2=p_double, out=p_double, i=Py_ssize_t, count=Py_ssize_t, which=int)
    cpdef object _rejecting(self, int which, object first, object last)

    @cython.locals(wide=bint, width=double, first=double, last=double, doubles=p_double,
                   singles=p_float, i=Py_ssize_t, x=uint32_t)
    cdef object _uniforms(self, Py_ssize_t count, object kind, double low, double high)

    @cython.locals(divisor=uint64_t, word=uint64_t, start=int64_t, at=p_int64, i=Py_ssize_t)
    cdef object _remainders(self, Py_ssize_t count, object kind, bint wide, object span, object low)

    @cython.locals(single=bint, doubles=p_double, singles=p_float, i=Py_ssize_t)
    cdef object _each(self, int which, Py_ssize_t count, object kind, double a=*, double b=*)

    @cython.locals(single=bint, size=Py_ssize_t, doubles=p_double, rest=p_double, singles=p_float,
                   others=p_float, i=Py_ssize_t, k=Py_ssize_t, x=uint32_t)
    cdef object _boxes(self, object values, double mean, double std)

    @cython.locals(single=bint, doubles=p_double, singles=p_float, i=Py_ssize_t, block=Py_ssize_t,
                   half=int, u=double, v=double, radius=double, angle=double, x=double, y=double)
    cdef object _few_boxes(
        self, object values, Py_ssize_t begin, Py_ssize_t end, double mean, double std)

    @cython.locals(word=uint64_t)
    cdef double _one(self) except? -1
    @cython.locals(u=double, v=double, radius=double, angle=double)
    cdef double _one_normal(self) except? -1
    cdef double _sample(self, int which, double a, double b) except? -1
    @cython.locals(count=double, product=double, least=double, root=double, a=double, b=double,
                   inverse=double, quick=double, u=double, v=double, us=double, k=double,
                   weight=double)
    cdef double _poisson(self, double rate) except? -1
    @cython.locals(scale=double, d=double, c=double, x=double, y=double, v=double, u=double,
                   xx=double)
    cdef double _gamma(self, double shape) except? -1
    @cython.locals(found=double, at=double, log_q=double)
    cdef double _binomial(self, double trials, double p) except? -1
    @cython.locals(deviation=double, b=double, a=double, odds=double, alpha=double, m=double,
                   quick=double, u=double, v=double, us=double, k=double, bound=double)
    cdef double _many_trials(self, double n, double p) except? -1

@cython.locals(steps=double)
cdef double _steps(double u, double log_q) except? -1
cdef double _rounded(double x) except? -1
cdef double _floor(double x) except? -1
cdef double _exp(double x) except? -1
cdef double _far_exp(double x) except? -1
@cython.locals(x=double)
cdef double _tail(double k) except? -1
