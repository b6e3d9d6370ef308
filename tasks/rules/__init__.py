"""Rules between columns at work: what they say of codes, of rows, and how rows are mended that break one.

Belongs here: evaluation of rules over cells and rows, the cells that cannot be, computed columns, repair.  Does not
belong here: the language and the models (data_contracts), the moves that keep to known zeros (tasks/synthesis).
"""
