"""Publishing: from a finished run to a released folder.

Belongs here: the folder, its certificate, manifest and note, the files' formats, and publishing to a database.
Does not belong here: the private report (privsyn/evaluation/report/), reading a release
(privsyn/storage/released_files.py), Prefect's pages (flows/run_page/).
"""
