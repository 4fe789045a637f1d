"""The handles that write one file group: create, append, merge, compact, cluster."""
