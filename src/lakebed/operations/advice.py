"""Which index fits: measures the rows of a new table, or a table and a batch, and ranks the indexes by cost. Which
vector indexes no longer fit their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine
from lakebed.errors import InvalidOption
from lakebed.index.ranking import Candidate, Ranking, Workload, rank
from lakebed.index.registry import built_in, index_of
from lakebed.metadata_kinds.layered_kind import layered_kind
from lakebed.metadata_kinds.text_store import text_indexes
from lakebed.metadata_kinds.vector_definitions import vector_indexes
from lakebed.read.index_search import MIN_ROWS
from lakebed.read.lookup import KeyText, exists
from lakebed.schema.arrow import check_names
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.row_size import from_types, of_stored
from lakebed.slices.snapshot import Snapshot, table_keys
from lakebed.wording import Printed, count_text

# At most this many rows of a DataFrame on Spark are examined, and this many keys of a batch are looked up.
_SAMPLE = 200_000
_LOOKED_FOR = 2_000
# Keys count as growing if this share of the rows, in input order, has a greater key than the row before.
_GROWING = 0.9
_PAST = 10
_LOAD = "BULK_INSERT"


@dataclass(frozen=True, repr=False)
class Advice(Printed):
    """The recommended index, with the cost of every index; prints as a table that explains each figure."""

    ranking_: Ranking

    @property
    def index(self) -> str:
        """The name for `lakebed.create(index=...)`."""
        return self.ranking_.best.index

    @property
    def settings(self) -> Mapping[str, int]:
        """The arguments of `create` that this index needs in addition to its name, such as `buckets`."""
        return self.ranking_.best.settings

    @property
    def ranking(self) -> tuple[Candidate, ...]:
        """All indexes, the cheapest first; indexes that do not fit the keys come last."""
        return self.ranking_.candidates

    @property
    def workload(self) -> Workload:
        """The workload that the costs were computed from."""
        return self.ranking_.workload

    def to_arrow(self) -> pa.Table:
        """The ranking as a table with a row for each index."""
        return self.ranking_.to_arrow()

    def __str__(self) -> str:
        return f"take index={self.index!r}\n{self.ranking_}"

    def _repr_html_(self) -> str:
        return f"<p>take <code>index={self.index!r}</code></p>{self.ranking_._repr_html_()}"  # pyright: ignore[reportPrivateUsage]


def indexes_to_rebuild(snapshot: Snapshot) -> dict[str, str]:
    """The vector indexes and text indexes that are to be built again, by their partitions, each with the reason."""
    names = [index.partition for index in (*vector_indexes(snapshot), *text_indexes(snapshot))]
    metadata = snapshot.metadata
    if metadata is None:
        return {}
    reasons = {name: layered_kind(name).opened(metadata, name).reason_to_rebuild(snapshot, MIN_ROWS) for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def advise_for_data(
    engine: Engine,
    data: Any,
    *,
    key: Sequence[str],
    partition_by: Sequence[str] = (),
    batch: Any = None,
    expected_rows: int | None = None,
    unique_keys: bool | None = None,
    deletes: bool = False,
    table_type: str = "cow",
) -> Advice:
    """The ranking for a table that is to hold these rows and to take batches like `batch` (rows, or their number)."""
    rows, count, sources = _looked_at(engine, data)
    _check_columns(rows.schema, [*key, *partition_by])
    scale = (expected_rows or count) / max(1, rows.num_rows)
    keys = _texts(rows, key)
    paths = _texts(rows, partition_by) if partition_by else None
    parts = _sizes(paths)
    unique = _is_unique(keys) if unique_keys is None else unique_keys
    grows = _grows(keys)
    sources.append(
        f"keys {'grow' if grows else 'come in any order'}, {'unique in the table' if unique else 'repeated'}"
    )
    coming, size = _batch(engine, batch, max(1, count // 100))
    touched, touched_rows, stored_share = 1, float(rows.num_rows), 1.0
    if coming is not None:
        _check_columns(coming.schema, key)
        stored_share = _stored_share(_texts(coming, key), keys)
        if partition_by and set(partition_by) <= set(coming.schema.names):
            touched, touched_rows = _touched(_texts(coming, partition_by), paths, parts)
    elif partition_by:
        touched = len(parts) if not grows else min(len(parts), 2)
        touched_rows = rows.num_rows * touched / max(1, len(parts))
    workload = Workload(
        rows=round(rows.num_rows * scale),
        row_bytes=from_types(rows.schema),
        partitions=len(parts) if partition_by else 0,
        batch=size,
        touched=max(1, touched),
        touched_rows=round(touched_rows * scale),
        known=stored_share,
        grows=grows,
        largest=max(parts.values(), default=rows.num_rows) / max(1, rows.num_rows),
        unique=unique,
        deletes=deletes,
        mor=table_type == "mor",
        sources=tuple(sources),
    )
    return Advice(rank(workload, built_in()))


def advise_for_table(snapshot: Snapshot, engine: Engine, batch: Any, *, deletes: bool = False) -> Advice:
    """The ranking of indexes for a table in its present state and a batch (rows, or None for a batch like the past
    commits)."""
    config = snapshot.config
    if not config.key_fields:
        raise InvalidOption("the table's keys are generated, so no write looks one up", hint="any index will do")
    again = [f"{name} is to be built again: {why}" for name, why in indexes_to_rebuild(snapshot).items()]
    files, row_bytes = snapshot.file_slices(), of_stored(snapshot)
    sizes: dict[str, int] = {}
    for file in files:
        sizes[file.partition] = sizes.get(file.partition, 0) + file.size
    total = sum(sizes.values())
    past = _past(snapshot)
    sources = [f"{len(files):,} files in {max(1, len(sizes)):,} partitions hold {total / (1 << 20):.1f} MiB", *again]
    if past is not None:
        sources.append(
            f"the last {count_text(past.commits, 'commit')} after the first load: {past.rows:,} rows each (the median),"
            f" {past.existing_share:.0%} of their rows had known keys"
        )
    coming, size = _batch(engine, batch, past.rows if past else max(1, round(total / row_bytes) // 100))
    if past is None and batch is None:
        sources.append("no commit after the first load: a batch is taken to be a hundredth of the rows")
    keys = table_keys(snapshot)
    touched, stored_share, grows = set(sizes), past.existing_share if past else 1.0, False
    if coming is not None:
        texts = keys.key_text_of(coming)
        sampled_keys = texts.slice(0, _LOOKED_FOR)
        stored_share = (
            float(pc.mean(exists(snapshot, KeyText(sampled_keys)).cast(pa.float64())).as_py() or 0.0)
            if len(sampled_keys)
            else 0.0
        )
        sources.append(f"of {len(sampled_keys):,} keys of the batch the table holds {stored_share:.0%}")
        if config.partition_fields and set(config.partition_fields) <= set(coming.schema.names) and not deletes:
            paths = [keys.partition_path.arrow(b) for b in coming.combine_chunks().to_batches()]
            touched = set(pc.unique(pa.chunked_array(paths, pa.string())).to_pylist())
        grows = _grows(pa.chunked_array([texts]))
    touched_bytes = sum(sizes.get(path, 0) for path in touched)
    index = index_of(snapshot, for_write=False)
    workload = Workload(
        rows=round(total / row_bytes),
        row_bytes=row_bytes,
        partitions=len(sizes) if config.partition_fields else 0,
        batch=size,
        touched=max(1, len(touched)),
        touched_rows=round(touched_bytes / row_bytes),
        known=stored_share,
        grows=grows,
        largest=max(sizes.values(), default=0) / max(1, total),
        unique=not config.partition_fields or index.is_global,
        deletes=deletes,
        mor=config.table_type == "mor",
        served=index.name == "hbase",
        sources=tuple(sources),
    )
    return Advice(rank(workload, built_in()))


@dataclass(frozen=True, slots=True)
class _Past:
    commits: int
    rows: int
    existing_share: float


def _past(snapshot: Snapshot) -> _Past | None:
    """The number of the last commits, their median rows and share of updates. Those that fill a table are left out: its
    first commit, and bulk inserts. None if there is no other."""
    written: list[tuple[int, int]] = []
    for instant in list(reversed(snapshot.commits[1:]))[:_PAST]:
        metadata = snapshot.timeline.commit_metadata(instant)
        if metadata.operation == _LOAD:
            continue
        stats = [s for group in metadata.stats.values() for s in group]
        inserts, updates = sum(s.num_inserts for s in stats), sum(s.num_updates for s in stats)
        if inserts + updates:
            written.append((inserts, updates))
    if not written:
        return None
    rows = sum(i + u for i, u in written)
    usual = sorted(i + u for i, u in written)[len(written) // 2]
    return _Past(len(written), max(1, usual), sum(u for _, u in written) / rows)


def _looked_at(engine: Engine, data: Any) -> tuple[pa.Table, int, list[str]]:
    """The rows to examine, the number of rows of the data, and a note on how many rows are examined."""
    rows = engine.rows(data)
    check_names(engine.schema(rows).names)
    if not engine.is_distributed:
        table = engine.collect(rows)
        return table, table.num_rows, [f"all {table.num_rows:,} rows were looked at"]
    schema = engine.schema(rows)
    sample = engine.collect(engine.head(rows, _SAMPLE))
    count = engine.estimated_rows(rows, from_types(schema)) if sample.num_rows == _SAMPLE else sample.num_rows
    count = max(sample.num_rows, count or sample.num_rows)
    return sample, count, [f"{sample.num_rows:,} of about {count:,} rows were looked at"]


def _batch(engine: Engine, batch: Any, usual: int) -> tuple[pa.Table | None, int]:
    if batch is None:
        return None, usual
    if isinstance(batch, int):
        return None, batch
    table, count, _ = _looked_at(engine, batch)
    return table, count


def _check_columns(schema: pa.Schema, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise InvalidOption(
            f"the data has no column {missing[0]!r}",
            hint=did_you_mean(missing[0], schema.names, "it has"),
            context={"column": missing[0]},
        )


def _texts(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    columns = [rows.column(name) for name in names]
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*[pc.fill_null(c.cast(pa.string()), "") for c in columns], "\0")


def _sizes(paths: pa.ChunkedArray | None) -> dict[Any, int]:
    if paths is None:
        return {}
    return {row["values"]: row["counts"] for row in pc.value_counts(paths).to_pylist()}


def _touched(coming: pa.ChunkedArray, paths: pa.ChunkedArray | None, parts: Mapping[Any, int]) -> tuple[int, float]:
    touched = pc.unique(coming).to_pylist()
    return len(touched), float(sum(parts.get(path, 0) for path in touched)) if paths is not None else 0.0


def _stored_share(coming: pa.ChunkedArray, keys: pa.ChunkedArray) -> float:
    return float(pc.mean(pc.is_in(coming, keys.combine_chunks()).cast(pa.float64())).as_py() or 0.0)


def _is_unique(keys: pa.ChunkedArray) -> bool:
    return pc.count_distinct(keys, mode="all").as_py() == len(keys)


def _grows(keys: pa.ChunkedArray) -> bool:
    """Whether nearly every key is greater than the key before it, in input order."""
    sample = keys.slice(0, _SAMPLE).combine_chunks()
    if len(sample) < 2:
        return False
    later = as_numpy(pc.greater(sample.slice(1), sample.slice(0, len(sample) - 1)))
    return bool(np.mean(later.astype(float)) >= _GROWING)
