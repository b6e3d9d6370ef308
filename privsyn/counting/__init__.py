"""Engines: where rows are encoded, counted and made, in this process or by the workers of a Dask cluster.

Belongs here: reading stored code tables in bounded memory, what makes one part of a table, and handing the work out.
Does not belong here: what is counted (tasks/), noise, budgets, the ledger.  Every engine gives the same integers and
bytes, so it is part of no key, manifest or record; noise is drawn and added by the run, in the process that runs the
release, whatever the engine.
"""
