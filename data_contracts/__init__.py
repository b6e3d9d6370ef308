"""The data that crosses every boundary: the request, the domain, the tables, the receipts.

Belongs here: frozen descriptions of data (pydantic models, dataclasses, Arrow schemas) and checks that need only the
value itself.  Does not belong here: files, algorithms, the order of steps.  This package imports nothing else of the
project (enforced by import-linter).
"""
