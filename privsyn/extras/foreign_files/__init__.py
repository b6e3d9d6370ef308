"""Files of other programs: workbooks, statistics files and Arrow files as tables, and codebooks as facts of columns."""
