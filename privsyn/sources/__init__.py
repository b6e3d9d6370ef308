"""Where private rows come from: table files and tables in memory, read by the same rules.

Belongs here: the check of a table's structure, streams of rows, and the fingerprint of a table.  Does not belong here:
what a value means and how it is encoded (tasks/codecs/), where the program keeps its own tables (privsyn/storage/).
"""
