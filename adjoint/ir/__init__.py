"""The program IR: how computations are captured, represented, cached and run."""
