"""Schemas in Arrow, Avro and Spark, their evolution, and casts between them."""
