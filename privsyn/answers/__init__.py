"""Answers from a release, with error bars: counts, shares, means, quantiles, correlations, regressions, differences.

Belongs here: statistics and their errors, from the files of one released folder.  Does not belong here: a ledger, the
private folder, a private table; none of it can be reached from here (pyproject.toml, import-linter).
"""
