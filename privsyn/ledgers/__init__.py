"""The privacy ledger: what each data set has spent, its lifetime cap, periods, audit, backup and export.

Belongs here: everything that reads or writes the ledger's database, and what its rows mean. Does not belong here: what
a query costs (data_contracts/receipts.py), when a run reserves and settles (privsyn/engine/open_run.py,
privsyn/engine/execute.py).
"""
