"""Metrics: how close a synthetic table is to a real one; one module per family.

Belongs here: pure functions of code tables, and the models and attacks that they use.  Does not belong here: which
metrics an evaluation takes, their titles and pages (privsyn/evaluation, privsyn/report).  Every figure is a function of
the real rows without noise, so it is private.
"""
