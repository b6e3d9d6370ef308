"""Noise and its accounting.

Belongs here: the one module that draws release noise (``noise``), and the conversions between (epsilon, delta) and a
price rho, each rounded to the safe side (``accountant``, ``gaussian_dp``). Does not belong here: sensitivities and
shares of a budget, which each release step plans, and what was spent, which the ledger holds.
"""
