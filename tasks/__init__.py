"""The algorithm: pure functions of tables and public settings.

Belongs here: the steps (``steps``), and what they are made of, in the packages beside it.  Does not belong here: files,
the ledger, the order of the steps, Prefect.  This package imports only data_contracts, and OpenDP only in ``privacy``.
"""
