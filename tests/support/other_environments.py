"""Modules of lakebed whose packages are in environments of their own."""

MODULES = frozenset(("lakebed.dbt_plugin.plugin", "lakebed.engine.dask_cluster", "lakebed.engine.ray_cluster"))
