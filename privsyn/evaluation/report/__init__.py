"""The private evaluation as one HTML page.

Belongs here: texts, charts and templates from figures.  Does not belong here: computing a figure
(privsyn/evaluation/).  Nothing here reads a table.
"""
