"""Catalogs: tables registered under names, for engines that look tables up there.

`base` is what a catalog is and what it is told of a table. `metastore` writes entries as real Hudi's sync does, for
`hive` and `glue`; `rest` writes entries that name a place and a format, for `unity` and `polaris`. `registry` finds a
catalog by its URI.
"""
