"""`lakebed serve`: the tables of a warehouse for clients of the Iceberg REST catalog protocol, read only."""
