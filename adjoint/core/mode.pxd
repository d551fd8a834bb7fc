cdef class Mode:
    cdef public object executor, saved_hooks, autocast, run, step, observer, overrides
    cdef public bint grad, inference, anomaly, lasting, plain, fuses, casts, watched
