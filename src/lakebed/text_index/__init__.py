"""Search of texts by words: inverted lists and their scores, as values and bytes without storage.

`words` makes texts into words, `lists` are the inverted lists of some rows and their bytes, `search` asks those of one
view of a table.
"""
