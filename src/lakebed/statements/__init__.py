"""SQL statements over tables: what `lakebed.sql` takes."""
