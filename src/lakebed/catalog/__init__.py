"""Catalogs: tables registered under names, for engines that look tables up there.

`base` has the interface of a catalog and the description of a table for it. `metastore` writes entries like real Hudi's
sync, for `hive` and `glue`. `rest` writes entries with a location and a format, for `unity` and `polaris`. `registry`
finds a catalog by its URI.
"""
