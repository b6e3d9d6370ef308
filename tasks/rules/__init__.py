"""Rules between columns: which codes and rows they forbid, what they compute, and how rows that break one are repaired.

Belongs here: interval arithmetic (``intervals``), rules bound to columns (``compiled_rules``), the repair of rows
(``repair``), whether any row can keep the rules (``feasibility``).  Does not belong here: the language and the models
(data_contracts), the moves that keep to known zeros (tasks/synthesis).
"""
