"""How good rows are: of a release against its private table, of one to come (forecasts/), and by method (comparison/).

Belongs here: the work of ``privsyn evaluate``, ``forecast`` and ``compare``, and the page of a private evaluation
(report/).  Does not belong here: the metrics (tasks/metrics/).  Everything of an evaluation stays in the private zone,
except the quality figures, which cost budget.
"""
