"""What writers do to the metadata table under the lock: commits, builds, rollbacks, compaction, comparison."""
