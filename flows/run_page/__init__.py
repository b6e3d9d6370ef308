"""A release's page in Prefect's UI: note, certificate, budget, files, overview and progress.

Belongs here: Prefect artifacts and their words and pictures.  Does not belong here: any figure that is not released, in
the public spec or in the ledger.
"""
