"""The tables of the benchmark page: a file for each, all with the same steps."""
