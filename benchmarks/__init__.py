"""Speed of the kernels and of whole releases, as ratios measured in one run."""
