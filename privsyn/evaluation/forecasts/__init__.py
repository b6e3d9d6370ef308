"""Forecast a release's quality before anything is spent, by simulated releases of a table made from public data.

Belongs here: the stand-in table and its assumptions, simulated releases of it, their figures, and what an attacker
learns at an epsilon.  Does not belong here: a private table, a ledger, a private folder; nothing here accepts one.
"""
