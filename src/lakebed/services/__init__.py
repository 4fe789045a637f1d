"""Services on a table: building, checking and repairing its indexes."""
