"""What kernels run on: memory, threads, code that was compiled."""
