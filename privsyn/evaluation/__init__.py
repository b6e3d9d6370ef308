"""A release compared with its private table: scores, details, and a few figures released with noise.

Belongs here: what ``privsyn evaluate`` does.  Does not belong here: the metrics (tasks/metrics/), the page
(privsyn/report/).  All of it stays in the private zone, except the quality figures, which cost budget.
"""
