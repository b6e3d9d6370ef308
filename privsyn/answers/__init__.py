"""Answers from a release, with error bars: counts, shares, means, quantiles, correlations, regressions, differences.

Belongs here: statistics and their errors, from the files of one released folder.  Does not belong here: a ledger, the
private folder, a private table; import-linter forbids these imports (pyproject.toml).
"""
