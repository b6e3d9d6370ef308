"""Frequent itemsets through basis marginals (PrivBasis: Li, Qardaji, Su and Cao 2012; DPSyn report, section 3.1).

One module a step, in the order of the algorithm: ``transactions`` (reading and counting), ``item_counts``,
``frequent_items``, ``pair_counts``, ``basis_set``, ``basis_marginals``, ``estimates``.  Pure: noise is added elsewhere.
"""
