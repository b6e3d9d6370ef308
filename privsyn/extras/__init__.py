"""What a reader of the core need not know; each room adds its parts through the registry (privsyn/base/registry.py).

Belongs here: a room for each extra, which may import the core.  Does not belong here: anything that the core or another
room imports.
"""
