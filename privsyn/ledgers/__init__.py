"""The privacy ledger: the spent budget of each data set, its lifetime cap, periods, audit, backup and export.

Belongs here: everything that reads or writes the ledger's database, and the meaning of its rows.  Does not belong here:
the price of a query (data_contracts/receipts.py), when a run reserves and settles (privsyn/engine/open_run.py,
privsyn/engine/execute.py).
"""
