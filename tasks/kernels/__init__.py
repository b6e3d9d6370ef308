"""Numba kernels over column-major codes, and what shares them out over threads and blocks of rows.

Belongs here: counting, one update of GUM, one sweep, seeded random streams, hashes.  Does not belong here: reading or
writing files, what is counted or synthesized and why, noise.
"""
