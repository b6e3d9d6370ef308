"""Readers of codebooks that are no plain JSON; each states the public facts of its form.

Belongs here: one module a form.  Does not belong here: what a draft makes of the facts (privsyn/specs/draft.py).
"""
