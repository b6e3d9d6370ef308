"""Dask: counts and parts by the workers of a cluster, behind `engine: {kind: dask}`."""
