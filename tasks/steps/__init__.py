"""The steps of the algorithm as pure functions; privsyn/pipelines/one_shot.py has their order.

Belongs here: pure functions of tables and public settings.  Does not belong here: the parts that steps share (the
sibling packages), the order of the steps (privsyn/pipelines/), files, the ledger, Prefect.
"""
