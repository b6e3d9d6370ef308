"""What a release would be worth, before anything is spent: releases in memory of a table made from public things.

Belongs here: the made-up table and its assumptions, simulated releases of it, their figures, and what an attacker
learns at an epsilon.  Does not belong here: a private table, a ledger, a private folder; none of it can be handed over.
"""
