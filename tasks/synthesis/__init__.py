"""How rows are made from consistent marginals: the starts, GUM, and residual-guided sweeps."""
