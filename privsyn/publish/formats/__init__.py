"""The formats of a release: CSV, a Frictionless data package, Croissant, a registry entry.

Belongs here: one module per format, each a function of the public spec, the certificate and the released tables.  Does
not belong here: making the synthetic table (privsyn/pipelines/), the folder as a whole (privsyn/publish/folder.py).
Nothing here draws noise, costs budget or looks at the private table.
"""
