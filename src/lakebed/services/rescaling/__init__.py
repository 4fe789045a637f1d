"""Rows moved to other buckets: rescaling a bucket index, and giving a table another index."""
