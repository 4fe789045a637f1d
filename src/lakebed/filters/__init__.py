"""Conditions: SQL text and Arrow expressions in, predicates with Spark's meaning out."""
