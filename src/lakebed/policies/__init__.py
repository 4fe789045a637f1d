"""Pure decisions: what to compact, cluster, clean, archive, and what a rollback removes."""
