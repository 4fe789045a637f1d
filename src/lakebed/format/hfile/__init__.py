"""HFiles, the base files of the metadata table."""
