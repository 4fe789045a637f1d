"""The command line: `lakebed --help`. It calls only the public surface and prints what comes back."""
