cdef class switched:
    cdef public object value, ended, variable, before

cdef class Mode:
    cdef public object executor, saved_hooks, autocast, run, step, observer, overrides
    cdef public tuple blocks
    cdef public bint grad, inference, anomaly, checks_nan, inlines, lasting, plain, fuses, casts, watched
