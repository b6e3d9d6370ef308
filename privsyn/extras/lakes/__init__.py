"""Tables of lakes: Delta and Iceberg, each at one version."""
