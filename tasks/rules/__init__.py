"""Rules between columns: forbidden codes and rows, computed columns, and the repair of rows that break a rule.

Belongs here: interval arithmetic (``intervals``), rules bound to columns (``compiled_rules``), the repair of rows
(``repair``), the search for a row that keeps the rules (``feasibility``).  Does not belong here: the language and the
models (data_contracts), moves that respect known zeros (tasks/synthesis).
"""
