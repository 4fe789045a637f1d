"""`spark.read.format("lakebed")`: the Python data source of Spark."""
