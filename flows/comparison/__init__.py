"""Methods compared on one table: runs, plots, and tables for people.

Belongs here: what ``privsyn compare`` does.  Does not belong here: the methods (tasks/methods/), the metrics
(tasks/metrics/).
"""
