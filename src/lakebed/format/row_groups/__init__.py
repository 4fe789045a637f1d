"""Parquet row groups and column chunks that are copied as bytes."""
