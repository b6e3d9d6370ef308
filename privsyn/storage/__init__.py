"""Files on disk: the private and the released root, and everything that the program writes there.

Belongs here: whole-or-absent files, artifacts with their HMACs, private records, and reading a released folder.  Does
not belong here: what a table must hold (data_contracts/tables.py), which step writes what (privsyn/engine/execute.py).
"""
