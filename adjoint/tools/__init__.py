"""Programs beside the framework: the command line, the profiler, comparisons for tests."""
