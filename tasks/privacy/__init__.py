"""Noise and its accounting.

Belongs here: the one module that draws release noise (``noise``), and the conversions between (epsilon, delta) and a
price rho, each rounded in the safe direction (``accountant``, ``gaussian_dp``).  Does not belong here: sensitivities
and shares of a budget, which each release step plans, and spending, which the ledger records.
"""
