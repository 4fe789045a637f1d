"""Several writers on one table: locks, heartbeats, markers, conflict checks."""
