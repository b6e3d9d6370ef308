"""Helpers for every package: wording of counts and lists, settings, paths, database addresses.

Belongs here: small things without a subject of their own.  Does not belong here: anything that knows a spec, a table or
a ledger.
"""
