"""Mechanisms: which steps make a release, from the public request alone.

Belongs here: one module a mechanism, each a function from the public request to a tuple of steps; the registry of all;
their drawing.  Does not belong here: how a step is run (privsyn/engine/), any algorithm (tasks/).
"""
