"""Kernels described in a file: an OpenCL source, its tunable parameters, and what it is called with."""
