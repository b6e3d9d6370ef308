"""Numba kernels over column-major codes: counting and GUM.  No I/O, no privacy decisions."""
