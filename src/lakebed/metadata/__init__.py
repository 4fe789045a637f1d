"""What readers ask of the metadata table: its file slices at one moment, and lookups in them."""
