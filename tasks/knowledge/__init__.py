"""Public knowledge about the private table: priors, totals, columns that move together.

Belongs here: how public knowledge in the spec changes estimates, codes and rows.  Does not belong here: reading public
tables (privsyn/specs/, privsyn/sources/), noise.
"""
