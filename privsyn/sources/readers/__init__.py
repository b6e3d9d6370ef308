"""Readers of private rows that are not in CSV or Parquet files, one module each, behind extras."""
