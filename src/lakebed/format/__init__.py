"""Byte formats of Hudi's files: base files, log blocks, HFiles, bloom filters, file names."""
