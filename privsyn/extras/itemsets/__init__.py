"""Releasing frequent itemsets of private transactions (PrivBasis): spec, source, steps, and the released folder."""
