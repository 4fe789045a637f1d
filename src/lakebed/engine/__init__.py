"""The engines that run a pipeline: the engine of this process and the Spark engine, over one protocol."""
