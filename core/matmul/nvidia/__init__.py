"""What is particular to NVIDIA: PTX rewriting, tensor maps, register lists, capabilities."""
