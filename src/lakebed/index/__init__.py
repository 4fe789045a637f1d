"""The indexes of writes, a file or folder each: where the rows of a batch go."""
