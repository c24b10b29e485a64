"""Kernels in C++ for the parts of a local step that XLA's CPU backend is slow at."""
