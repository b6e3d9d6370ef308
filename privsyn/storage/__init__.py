"""Files on disk: the private and the released root, and everything that the program writes there.

Belongs here: whole-or-absent files, artifacts with their HMACs, private records, and reading a released folder.  Does
not belong here: the content of tables (data_contracts/tables.py), which step writes which table
(privsyn/engine/execute.py).
"""
