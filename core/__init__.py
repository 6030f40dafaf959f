"""rooftune: finds the fastest kernel for an OpenCL device, and shows why it is the fastest."""

__version__ = "0.1.0"
