"""Row expressions (keys, partition paths, buckets): each as Spark SQL and as an Arrow kernel."""
