"""The public functions and the objects that they return, in a module for each function or few related ones.

Belongs here: what ``import privsyn`` names, with its checks of arguments.  Does not belong here: Prefect, the command
line, anything that another package needs (those below are imported from here, never the other way round).
"""
