"""Consistent hashing: buckets that are split and joined one by one."""
