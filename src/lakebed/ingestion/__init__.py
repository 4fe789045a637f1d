"""Continuous ingest: rows of a source go into a table, and the source's position goes into the same commit."""
