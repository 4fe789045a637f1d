"""Reads: scans, lookups by key, incremental reads, change data, joins by buckets."""
