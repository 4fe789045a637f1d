"""Where the rows of entries of a vector index are, for the fold of its layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakebed.metadata_kinds.layer_fold import Locators
from lakebed.vector_index.entries import Entries, vector_positions


class VectorLocators(Locators):
    """Gives entries their file groups of today: the `Relocation` of a fold (see `vector_index/search.py`).

    An exact vector stays where its file group has log files, in which it would cost much to read it.
    """

    def relocated(self, entries: Entries) -> Entries:
        """Entries with the numbers of `groups`, without those of rows that are gone."""
        locations = self.locations(entries.hashes, entries.groups)
        if locations.is_moved.any() or len(locations.at) < len(entries):
            entries = entries.take(locations.at)
        if locations.is_placed.any():
            entries = replace(entries, rows=np.where(locations.is_placed, locations.positions, entries.rows))
        entries = replace(entries, groups=locations.groups)
        has_vector = entries.vector_rows >= 0
        if has_vector.any():
            stays = has_vector & self.has_logs[entries.groups]
            vectors = entries.vectors[entries.vector_rows[stays]]
            entries = replace(entries, vectors=vectors, vector_rows=vector_positions(stays))
        return entries
