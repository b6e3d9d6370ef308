"""What a release shows on its page in Prefect's UI: note, certificate, budget, files, overview, progress.

Belongs here: the page's words, its pictures of public figures, and the artifacts.  Does not belong here: any figure
that is not released, in the public spec or in the ledger.
"""
