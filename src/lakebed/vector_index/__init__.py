"""Approximate search of vectors: an index of clusters and short codes, as values and bytes without storage.

`shape` is what an index is, `centroids` finds the clusters, `codes` makes vectors into codes, `entries` are the rows of
the index, `layers` are the entries of one commit or of a build with what the commit changed,
`search` asks them, `runs` are the entries of a build that do not fit into memory.
"""
