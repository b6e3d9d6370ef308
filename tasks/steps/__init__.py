"""The steps of the algorithm, one module a step, in the order of PrivSyn (Algorithm 3).

Belongs here: pure functions of tables and public settings, one module a step.  Does not belong here: what steps are
made of (the packages beside this one), the order of the steps (privsyn/pipelines/), files, the ledger, Prefect.
"""
