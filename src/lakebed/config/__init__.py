"""Options and the read/write matrix: what a caller may ask for, and what a table may ask of lakebed."""
