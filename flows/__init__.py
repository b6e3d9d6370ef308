"""The shell: the only package that knows Prefect, files, the ledger and the command line."""
