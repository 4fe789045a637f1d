"""Rows of new files, with what the writers of the files have to know of them: found for the rows of many files at once,
since each question to Arrow takes about the same time for few rows as for many."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.format.row_addresses import Fingerprints


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows in the columns of a file; the file's name is added when they are written.

    `fingerprints` are those of their keys, and `keys` their smallest and their greatest key as `KeyRange` has them
    (None: not computed). Rows that are `is_ordinary` are known to have neither NaN nor a long text.
    """

    batch: pa.RecordBatch
    fingerprints: Fingerprints | None = None
    keys: tuple[str, str] | None = None
    is_ordinary: bool = False

    def slice(self, start: int, rows: int | None = None, keys: tuple[str, str] | None = None) -> NewRows:
        """Some consecutive rows (None: all from `start` on), with their smallest and greatest key."""
        hashes = self.fingerprints
        if hashes is not None:
            hashes = hashes[start:] if rows is None else hashes[start : start + rows]
        return NewRows(self.batch.slice(start, rows), hashes, keys, self.is_ordinary)
