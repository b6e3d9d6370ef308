"""A release against the private table: scores, details, the flow, and figures of quality released with noise.

Belongs here: what ``privsyn evaluate`` does.  Does not belong here: the metrics (tasks/metrics/), the page
(flows/report/).  All but the quality figures stays in the private zone.
"""
