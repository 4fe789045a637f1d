"""The metadata table: its partitions, its files, what it answers."""
