"""Methods compared on one table: the methods in memory, runs, plots, and tables for people.

Belongs here: what ``privsyn compare`` does.  Does not belong here: the algorithm and the metrics (tasks/).
"""
