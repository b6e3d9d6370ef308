"""The methods of the papers that this project does not release by, each with the section that it follows.

Belongs here: what `privsyn compare` and the benchmarks set beside the mechanisms.  Does not belong here: a mechanism of
a release (privsyn/pipelines/).
"""
