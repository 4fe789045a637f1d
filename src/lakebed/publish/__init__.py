"""Publishing: a table's Parquet files listed as tables of other formats, next to the data.

A copy-on-write table is Parquet files and a list of them. `versions` gives the table as each commit left it,
`data_files` what footers know of its files, `publication` brings the list of a format up to date, and `delta` and
`iceberg` are the formats.
"""
