"""One process that keeps many tables in shape: what is due, whose turn it is, and what happened."""
