"""The release spec as people write it: reading, drafting and checking it, and explaining errors.

Belongs here: YAML files and data dictionaries, and messages about a field.  Does not belong here: the model of the spec
(data_contracts/release_spec.py), the effects of a spec (privsyn/api/check.py).
"""
