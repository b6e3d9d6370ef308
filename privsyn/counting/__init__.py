"""Engines: where rows are encoded, counted and made, in this process or by the workers of a Dask cluster.

Belongs here: reading stored code tables in bounded memory, making parts of tables, and distributing the work.  Does not
belong here: what is counted (tasks/), noise, budgets, the ledger.  Every engine gives the same integers and bytes, so
it is part of no key, manifest or record; the release's own process draws and adds the noise, whatever the engine.
"""
