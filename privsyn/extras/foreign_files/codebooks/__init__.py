"""Readers of codebooks in forms other than plain JSON; each returns public facts.

Belongs here: one module per form.  Does not belong here: drafts from these facts (privsyn/specs/draft.py).
"""
