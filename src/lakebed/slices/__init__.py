"""A view of a table at one instant, and the reader of one file slice."""
