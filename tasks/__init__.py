"""The algorithm: one module a step, in the order of PrivSyn (Algorithm 3).  See README.md."""
