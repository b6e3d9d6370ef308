"""Numba kernels over column-major codes, and their distribution over threads and blocks of rows.

Belongs here: counting, one update of GUM, one sweep, seeded random streams, hashes.  Does not belong here: reading or
writing files, choosing what to count or synthesize, noise.
"""
