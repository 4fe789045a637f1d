"""A warehouse in a session of Spark: `lakebed.spark.attach`."""
