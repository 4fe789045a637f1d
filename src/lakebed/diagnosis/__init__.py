"""What is wrong with a table, its storage or this installation, and what to do about it."""
