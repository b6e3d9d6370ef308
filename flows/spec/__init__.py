"""The release spec as people write it: reading, drafting, checking, and what is wrong with it in words.

Belongs here: YAML and data dictionaries on their way to a ReleaseSpec.  Does not belong here: the spec itself
(data_contracts/spec.py).
"""
