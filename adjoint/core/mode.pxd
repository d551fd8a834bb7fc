cdef class Mode:
    cdef public object executor, saved_hooks, autocast, run, step, observer, overrides
    cdef public bint grad, inference, anomaly, checks_nan, inlines, lasting, plain, fuses, casts, watched
