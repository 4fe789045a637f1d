"""Merge rules: which of two rows with one key wins, and what it looks like."""
