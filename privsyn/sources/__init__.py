"""Sources of private rows: table files and tables in memory, read by the same rules.

Belongs here: the check of a table's structure, streams of rows, and the fingerprint of a table.  Does not belong here:
the meaning and encoding of values (tasks/codecs/), the program's own tables (privsyn/storage/).
"""
