"""The contents of instants, in Hudi's Avro and JSON."""
