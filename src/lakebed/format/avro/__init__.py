"""Avro records and container files to Arrow columns and back."""
