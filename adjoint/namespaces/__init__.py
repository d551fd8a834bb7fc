"""PyTorch's namespaces of functions, in terms of ops: `linalg`, `fft`, `special`, `cuda`, ..."""
