"""Reports as pages and pictures: the private evaluation as one HTML page, and the public overview of a release.

Belongs here: texts, charts and templates from figures.  Does not belong here: computing a figure
(privsyn/evaluation/, privsyn/publish/noise_overview.py).  Nothing here reads a table.
"""
