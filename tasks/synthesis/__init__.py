"""Synthesis of rows from consistent marginals: initial rows, GUM, and residual-guided sweeps.

Belongs here: the methods and their shared parts.  Does not belong here: the choice between methods and the split into
components (tasks/steps/synthesize.py), inner loops (tasks/kernels), anything that reads private rows.
"""
