"""The forms in which a release is given away: CSV, a Frictionless data package, Croissant, a registry entry.

Belongs here: one module a form, each a function of the public spec, the certificate and the synthetic table; and
adding a form to a release that is there. Does not belong here: the synthetic table itself
(privsyn/pipelines/privsyn.py), the folder as a whole (privsyn/publish/folder.py). Nothing here draws noise, costs
budget or looks at the private table.
"""
