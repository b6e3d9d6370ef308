"""Files: whole or absent, in one of two zones, and known again.

Belongs here: folders, artifacts, records, and reading what was released.  Does not belong here: what a table must hold
(data_contracts/tables.py), which step writes what (flows/shell.py).
"""
