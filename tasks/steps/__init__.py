"""The steps of the algorithm, one module per step, in the order of PrivSyn (Algorithm 3).

Belongs here: pure functions of tables and public settings.  Does not belong here: the parts that steps share (the
sibling packages), the order of the steps (privsyn/pipelines/), files, the ledger, Prefect.
"""
