"""The bloom index: key ranges and bloom filters of base files."""
