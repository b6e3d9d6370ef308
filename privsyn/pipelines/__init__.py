"""Mechanisms: the steps of a release, from the public request alone.

Belongs here: one module per mechanism, each a function from the public request to a tuple of steps; the registry of
mechanisms; the drawing of steps.  Does not belong here: running a step (privsyn/engine/), any algorithm (tasks/).
"""
