"""Readers of private rows that lie in no CSV or Parquet file, a module each, behind extras."""
