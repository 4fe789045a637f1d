"""What a vector index or a text index of a table is made of: its layers, its clusters, the entries that count, and the
commits that it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.metadata_kinds.layered_kind import layered_kind
from lakebed.pictures import Bar, Picture, bars
from lakebed.read.index_search import MIN_ROWS
from lakebed.services.vector_indexes import named_layered_index
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.search import MAX_SKEW
from lakebed.wording import Printed, count_text, size_text

# A picture has at most so many bars.
_MAX_BARS = 240
_LAYERS = pa.schema([("layer", pa.string()), ("entries", pa.int64()), ("changed_rows", pa.int64())])
_GAPS = pa.schema([("instant", pa.string()), ("operation", pa.string()), ("file_groups", pa.int64())])


@dataclass(frozen=True, eq=False, repr=False)
class IndexLayers(Printed):
    """What a vector index or a text index is made of.

    `metric` and `bits` are those of a vector index, None for a text index. `bytes` is the size of its files in the
    metadata table. `layers` has a row for each layer: layer ("build", or the instant of its commit), entries,
    changed_rows. `cluster_sizes` are the numbers of entries of the clusters, none for a text index.

    Of `examined` entries `counting` count. The others are of rows that later commits wrote again or deleted, of file
    groups that the index lacks, or, of a text index, of rows that a search reads from the table.

    `gaps` has a row for each commit that the index lacks: instant, operation, file_groups. Because of them searches
    read `exact_groups` file groups exactly. `unusable` is why no search uses the index, `rebuild` why it is due to be
    built again; each is None where that is not so.
    """

    index: str
    column: str
    metric: str | None
    bits: int | None
    bytes: int
    layers: pa.Table
    cluster_sizes: pa.Array
    counting: int
    examined: int
    gaps: pa.Table
    exact_groups: int
    unusable: str | None
    rebuild: str | None

    @property
    def entries(self) -> int:
        """The number of entries of all layers."""
        return pc.sum(self.layers["entries"]).as_py() or 0

    @property
    def stale_share(self) -> float:
        """The share of the examined entries that do not count, 0.0 for none."""
        return 1 - self.counting / self.examined if self.examined else 0.0

    @property
    def largest_cluster(self) -> int:
        """The number of entries of the largest cluster, 0 for a text index."""
        return pc.max(self.cluster_sizes).as_py() or 0

    @property
    def mean_cluster(self) -> float:
        """The mean number of entries of a cluster, 0.0 for a text index."""
        return pc.mean(self.cluster_sizes).as_py() or 0.0

    def plot(self) -> Picture:
        """The sizes of the clusters as an SVG picture: a bar for each, the largest first, and a line at the mean. Of
        many clusters some are drawn. Bars of more than 8 times the mean are red: the index is then built again.

        >>> import lakebed
        >>> columns = pa.schema([("id", pa.int64()), ("at", lakebed.vector(2))])
        >>> notes = lakebed.create("memory://docs/plotted", columns, key="id")
        >>> _ = notes.upsert({"id": [1, 2], "at": [[1.0, 0.0], [0.0, 1.0]]})
        >>> notes.indexes.create("vector", column="at")
        >>> notes.indexes.layers("at").plot()[:4]
        '<svg'
        """
        sizes = np.sort(self.cluster_sizes.to_numpy())[::-1]
        ranks = np.unique(np.linspace(0, max(0, len(sizes) - 1), _MAX_BARS).astype(np.int64))[: len(sizes)]
        note = "" if len(ranks) == len(sizes) else f", {len(ranks)} of them drawn"
        listed = [(rank, int(sizes[rank])) for rank in ranks.tolist()]
        return bars(
            [
                Bar(size, f"number {rank + 1} by size: {size:,} entries", size > MAX_SKEW * self.mean_cluster)
                for rank, size in listed
            ],
            f"{count_text(len(sizes), 'cluster')}, mean {self.mean_cluster:,.1f} entries,"
            f" largest {self.largest_cluster:,}{note}",
            self.mean_cluster,
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON, with `entries` and `stale_share`."""
        tables = {"layers": self.layers.to_pylist(), "gaps": self.gaps.to_pylist()}
        sizes = {"cluster_sizes": self.cluster_sizes.to_pylist()}
        return {**vars(self), **tables, **sizes, "entries": self.entries, "stale_share": self.stale_share}

    def __str__(self) -> str:
        of_vectors = f", {self.metric}, {self.bits} bits" if self.metric else ""
        lines = [
            f"{self.index} on {self.column}{of_vectors}: {self.entries:,} entries in"
            f" {count_text(self.layers.num_rows, 'layer')}, {size_text(self.bytes)}"
        ]
        if len(self.cluster_sizes):
            clusters = count_text(len(self.cluster_sizes), "cluster")
            lines.append(f"{clusters}, mean {self.mean_cluster:,.1f} entries, largest {self.largest_cluster:,}")
        lines.append(f"{self.stale_share:.1%} of {self.examined:,} examined entries do not count")
        if self.gaps.num_rows:
            commits, groups = count_text(self.gaps.num_rows, "commit"), count_text(self.exact_groups, "file group")
            lines.append(f"it lacks {commits}: searches read {groups} exactly")
        if self.rebuild is not None:
            lines.append(f"it is due to be built again: {self.rebuild}")
        return "\n".join(lines)


def index_layers(snapshot: Snapshot, name: str) -> IndexLayers:
    """What the vector index or the text index with this name, or on the column with this name, is made of. Raises
    `InvalidOption` for another."""
    index, metadata = named_layered_index(snapshot, name), snapshot.metadata
    assert metadata is not None  # otherwise there is no such index
    stored = layered_kind(index.partition).opened(metadata, index.partition)
    covered = stored.coverage(snapshot)
    names = stored.names_in(snapshot)
    heads = [stored.layer_heads[of] for of in names]
    changes = [head.changes for head in heads]
    layers = [
        pa.array(["build" if of == BUILD else of for of in names], pa.string()),
        pa.array([head.rows for head in heads], pa.int64()),
        pa.array([len(np.union1d(of.replaced, of.possible)) for of in changes], pa.int64()),
    ]
    commits = {instant.time: instant for instant in snapshot.timeline.commits_by_completion}
    operations = [snapshot.timeline.commit_metadata(commits[gap.instant]).operation for gap in covered.gaps]
    gaps = [
        pa.array([gap.instant for gap in covered.gaps], pa.string()),
        pa.array([operation.lower() for operation in operations], pa.string()),
        pa.array([len(gap.groups) for gap in covered.gaps], pa.int64()),
    ]
    counting, examined = stored.counting(snapshot, covered)
    return IndexLayers(
        index.partition,
        index.column,
        index.metric,
        index.bits,
        sum(file_slice.size for file_slice in metadata.slices.file_slices(index.partition)),
        pa.Table.from_arrays(layers, schema=_LAYERS),
        pa.array(stored.cluster_sizes(snapshot), pa.int64()),
        counting,
        examined,
        pa.Table.from_arrays(gaps, schema=_GAPS),
        len(covered.groups),
        covered.reason,
        stored.reason_to_rebuild(snapshot, MIN_ROWS),
    )
