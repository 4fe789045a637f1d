"""What writes one file group: create, append, merge, compact, cluster."""
