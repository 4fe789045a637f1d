"""Rows that come from outside: data files, streams, and tables of other formats."""
