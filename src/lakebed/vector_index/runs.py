"""The entries of a build of a vector index, in bounded memory: sorted runs of them are in temporary files, which become
the blocks of one layer, cluster by cluster."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from lakebed.format.bounded_cache import BoundedCache
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import Entries
from lakebed.vector_index.layers import Groups, Layer, write_layer
from lakebed.vector_index.search import LayeredIndex


class StoredBlocks:
    """The blocks of a layer in a temporary file, which is removed with the object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="lakebed-")  # noqa: SIM115
        self._ends = [0]

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, block: bytes) -> None:
        """Write a block after the others."""
        self._file.write(block)
        self._ends.append(self._ends[-1] + len(block))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """The blocks with these numbers, in their order."""
        self._file.flush()
        file = self._file.fileno()
        return [os.pread(file, self._ends[n + 1] - self._ends[n], self._ends[n]) for n in numbers]


class EntryRuns:
    """The runs of one build. A run has the entries of some rows, sorted by their clusters, as a layer in a file."""

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._runs: list[Layer] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, parts: Sequence[Entries], groups: Groups) -> None:
        """Write a run with the entries of all parts, whose file groups are in the list `groups`; lists of later runs
        begin with those of earlier ones."""
        blocks = StoredBlocks()
        head = write_layer(parts, groups, None, blocks.add)
        self._runs.append(Layer(str(len(self._runs)), head, blocks.read))

    def joined(self, parts: Sequence[Entries], groups: Groups) -> Layer:
        """One layer with the entries of all runs and of these parts: in a file if there are runs, else in memory."""
        if not self._runs:
            in_memory: list[bytes] = []
            head = write_layer(parts, groups, None, in_memory.append)
            return Layer("", head, lambda numbers: [in_memory[number] for number in numbers])
        self.add(parts, groups)
        blocks, folded = StoredBlocks(), LayeredIndex(self._coder, self._runs, BoundedCache(0)).fold()
        while True:
            try:
                blocks.add(next(folded))
            except StopIteration as end:
                return Layer("", end.value, blocks.read)
