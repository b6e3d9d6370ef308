"""Metrics: how close a synthetic table is to a real one; pure functions of code tables, one module a family."""
