"""The release spec as people write it: reading, drafting and checking it, and naming what is wrong with it.

Belongs here: YAML files and data dictionaries, and messages about a field.  Does not belong here: the model of the spec
(data_contracts/release_spec.py), what a spec would do (privsyn/api/check.py).
"""
