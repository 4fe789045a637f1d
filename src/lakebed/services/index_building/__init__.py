"""Indexes of the metadata table that are built beside writers."""
