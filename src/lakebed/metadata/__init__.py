"""The parts of the metadata table that readers use: its file slices at one moment, and lookups in them."""
