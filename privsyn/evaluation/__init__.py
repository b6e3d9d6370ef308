"""Compare a release with its private table: scores, details, and a few figures released with noise.

Belongs here: the work of ``privsyn evaluate``.  Does not belong here: the metrics (tasks/metrics/), the page
(privsyn/report/).  Everything stays in the private zone, except the quality figures, which cost budget.
"""
