"""The bytes of the metadata table: definitions, names, keys, records, HFiles; no view of a table."""
