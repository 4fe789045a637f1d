"""lakebed: upserts, deletes, indexes and incremental reads on tables in Apache Hudi's format."""
