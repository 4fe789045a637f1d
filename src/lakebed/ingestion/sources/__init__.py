"""The kinds of sources: data files, other tables, Kafka topics, SQL databases."""
