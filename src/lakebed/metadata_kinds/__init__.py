"""The partitions of the metadata table: one file for each kind; `registry.py` names them."""
