"""The metadata table as a table: file slices, commits, rollbacks, compaction, cleaning."""
