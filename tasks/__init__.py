"""The algorithm: one module per step at the top level, in the order of PrivSyn (Algorithm 3).

Belongs here: pure functions of tables and public settings, and what steps are made of, in the packages below.  Does not
belong here: files, the ledger, the order of the steps, Prefect.  This package imports only data_contracts, and OpenDP
only in ``privacy``.
"""
