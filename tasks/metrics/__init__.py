"""Metrics: how close a synthetic table is to a real one; one module per family.

Belongs here: pure functions of code tables, and their models and attacks.  Does not belong here: which metrics an
evaluation uses, their titles and pages (privsyn/evaluation).  Every figure is computed from the real rows without
noise, so it is private.
"""
