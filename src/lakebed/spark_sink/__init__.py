"""Spark writes tables: streams by `stream_into`, streams and DataFrames by `format("lakebed")`."""
