"""How rows are made from consistent marginals: the starts, GUM, and residual-guided sweeps.

Belongs here: the methods and what they share.  Does not belong here: the choice between them and the split into
components (tasks/steps/synthesize.py), their inner loops (tasks/kernels), anything that looks at private rows.
"""
