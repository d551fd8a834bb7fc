"""From ops and programs to kernels: tracing, fusion, and which call gets which."""
