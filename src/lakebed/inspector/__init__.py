"""The inspector: a read-only web page about tables. It calls the public surface only."""
