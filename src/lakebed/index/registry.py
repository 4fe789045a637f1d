"""From a name, an object or what the table remembers to an `Index`; third-party indexes come in by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.config.settings import IndexSettings
from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.index.base import Index, IndexOptions, key_hash_of
from lakebed.index.bucket_counts import PartitionCounts, read_counts, rules_for_all, rules_text
from lakebed.metadata_kinds.base import NewIndex
from lakebed.metadata_kinds.registry import (
    kind_of,
)
from lakebed.plugins import plugins
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot

if TYPE_CHECKING:
    from lakebed.metadata_records.definitions import IndexName

ENTRY_POINTS = "lakebed.indexes"
PREFIX = "lakebed.index."

_RECORD = "lakebed.index.record:RecordIndex"
# The class of each name, which is imported for a table that has such an index.
_BUILT_IN = {
    "bucket": "lakebed.index.bucket:BucketIndex",
    "bucket_groups": "lakebed.index.bucket_groups:BucketGroupsIndex",
    "consistent": "lakebed.index.consistent.index:ConsistentIndex",
    "simple": "lakebed.index.simple:SimpleIndex",
    "global_simple": "lakebed.index.simple:GlobalSimpleIndex",
    "bloom": "lakebed.index.bloom.index:BloomIndex",
    "global_bloom": "lakebed.index.bloom.index:GlobalBloomIndex",
    "record": _RECORD,
    "record_index": _RECORD,
    "global_record_level_index": _RECORD,
    "record_level_index": _RECORD,
    "hbase": "lakebed.index.hbase.index:HBaseIndex",
}
# Names that Hudi (or lakebed's own vocabulary) has for indexes that this version does not write.
_OF_OTHER_ENGINES = (
    "inmemory",
    "flink_state",
)


def built_in() -> tuple[str, ...]:
    """The names of lakebed's own indexes."""
    return tuple(_BUILT_IN)


def make_index(
    spec: str | Index,
    *,
    key_fields: Sequence[str],
    buckets: int | None = None,
    fields: Sequence[str] = (),
    update_partition_path: bool | None = None,
    hbase: Mapping[str, Any] | None = None,
    partition_buckets: str | None = None,
) -> Index:
    """The index that a name (in any case) or an `Index` object means; for "auto" `advise` chooses it.

    `buckets` and `fields` belong to the bucket index (`fields`: a subset of `key_fields`, empty for all of them),
    `update_partition_path` to the global ones; given for another index they raise `InvalidOption`. `hbase` is where
    the rows of an HBase index are.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Index):  # pyright: ignore[reportUnnecessaryIsInstance]  # of untyped callers
            raise InvalidOption(
                f"an index is a name or an Index object, not {type(spec).__name__}", hint="take index='auto'"
            )
        return spec.resolved(key_fields)
    name = spec.strip().lower()
    options = IndexOptions(
        name,
        buckets,
        tuple(fields) or None,
        update_partition_path,
        partition_buckets,
        hbase=hbase or {},
    )
    return _from_options(options).resolved(key_fields)


def job_index(options: IndexSettings, key_fields: Sequence[str], recorded: Index | None = None) -> Index | None:
    """The index that a Hudi job's options name; None if they do not name one. Options that are not given come from the
    `recorded` index of the table if it has that name, otherwise from Hudi's defaults."""
    if options.type is None or options.type == "auto":
        return None
    name = options.type.strip().lower()
    if recorded is not None and recorded.name == name:
        defaults = recorded.settings()
    else:
        defaults = getattr(_class_of(name), "HUDI_SETTINGS", {})
    fields, moves = options.fields or None, options.update_partition
    named = IndexOptions(name, options.buckets, fields, moves, options.partition_buckets, defaults, options.hbase)
    return _from_options(named).resolved(key_fields)


def recorded_index(settings: Mapping[str, str], *, missing_ok: bool = False) -> Index | None:
    """The index in a table's `lakebed.index.*` properties (given without that prefix); None if they do not name one.

    With `missing_ok` also None for an index whose class is not installed here: a read does not need it.
    """
    name = settings.get("type")
    if not name or (missing_ok and name not in _BUILT_IN and _third_party(name) is None):
        return None
    return _from_settings(name, settings)


def recorded_settings(snapshot: Snapshot) -> Mapping[str, str]:
    """The settings of the index that the table records as of this view, without the prefix `lakebed.index.`. If real
    Hudi has given partition paths their own bucket counts, or changed them, the counts come from its newest file."""
    settings = snapshot.index_settings
    if settings.get("type") != "bucket":
        return settings
    counts = read_counts(snapshot)
    if counts is None or _has_none(settings, counts):
        return settings
    return {**settings, "bucket.partitions": rules_text(counts.rules), "bucket.count": str(counts.count)}


def _has_none(settings: Mapping[str, str], counts: PartitionCounts) -> bool:
    """Whether these settings and counts describe an index without bucket counts of single partition paths."""
    return "bucket.partitions" not in settings and counts.rules == rules_for_all(int(settings.get("bucket.count", 0)))


def check_partition_counts(snapshot: Snapshot, index: Index) -> None:
    """Raise an error for a write under an index without bucket counts by partition path, to a table for which real Hudi
    stores such counts."""
    counts = read_counts(snapshot)
    settings = index.settings()
    if counts is None or key_hash_of(index) is None or settings.get("bucket.partitions") == rules_text(counts.rules):
        return
    if _has_none(settings, counts):
        return
    raise IndexInconsistent(
        f"table {snapshot.config.name!r} has bucket counts by partition path ({rules_text(counts.rules)!r}, else"
        f" {counts.count}), and its index is {_description(dict(index.settings()))}",
        hint="Adopt it once: t.indexes.adopt('bucket', buckets=..., partition_buckets=...), with these numbers.",
        context={"path": counts.path, "table": dict(index.settings())},
    )


def index_of(snapshot: Snapshot, *, for_write: bool = True) -> Index:
    """The index of a table: the index in its properties, otherwise the index that its files show (see `infer_index`).

    Without `for_write` nothing is refused and there is no warning: an unknown index is a simple one.
    """
    index = recorded_index(recorded_settings(snapshot))
    if index is None:
        from lakebed.index.inference import infer_index  # knows every index; a table of lakebed has its own recorded

        return infer_index(snapshot, for_write=for_write)
    return index.resolved(snapshot.config.key_fields)


def index_properties(index: Index) -> dict[str, str]:
    """The properties in `hoodie.properties` that record an index."""
    return {PREFIX + key: value for key, value in index.settings().items()}


def recorded_index_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties that record the table's index, in the form of `hoodie.properties`."""
    return {PREFIX + key: value for key, value in recorded_settings(snapshot).items()}


def check_same_index(recorded: Index, requested: Index) -> None:
    """Raise an error for a write whose options name another index than the table's; the error names both."""
    has, asks = dict(recorded.identity()), dict(requested.identity())
    if has == asks:
        return
    hint = "leave the index options out: the table knows its own"
    if all(index.hashing is None or index.hashing.rows_can_move for index in (recorded, requested)):
        if recorded.name == requested.name and "bucket.count" in has:
            hint += ". t.maintenance.rescale(buckets=...) gives it another count,"
            hint += " t.indexes.use('bucket', hash_fields=[...]) other hash fields"
        else:
            hint += f". t.indexes.use({asks.get('type')!r}) gives it another"
    raise InvalidOption(
        f"the table's index is {_description(has)}, the write asks for {_description(asks)}",
        hint=hint,
        context={"table": has, "write": asks},
    )


def _description(settings: Mapping[str, str]) -> str:
    phrases = {
        "bucket.count": "{} buckets",
        "bucket.fields": "hashed on {}",
        "bucket.partitions": "by partition path: {}",
        "bucket.splits": "some of them split: {}",
        "update_partition": "moving rows to their new partition: {}",
        "partitioned": "for each partition path: {}",
    }
    details = [phrases.get(k, k + "={}").format(v) for k, v in settings.items() if k != "type"]
    return settings.get("type", "unnamed") + (f" ({', '.join(details)})" if details else "")


def _from_options(options: IndexOptions) -> Index:
    factory = _class_of(options.name)
    if hasattr(factory, "from_options"):
        return _checked(options.name, factory.from_options(options))
    options.refuse_all_but()
    return _from_settings(options.name, {"type": options.name})


def _from_settings(name: str, settings: Mapping[str, str]) -> Index:
    """An instance of the named class: the result of its `from_settings(settings)`, or if it does not have that of its
    call without arguments."""
    factory = _class_of(name)
    index = factory.from_settings(settings) if hasattr(factory, "from_settings") else factory()
    return index if name in _BUILT_IN else _checked(name, index)


def _checked(name: str, index: Any) -> Index:
    if not isinstance(index, Index):
        raise InvalidOption(
            f"entry point {name!r} of {ENTRY_POINTS} gives a {type(index).__name__}, which is no lakebed Index",
            hint="it has to have the members of lakebed.index.base.Index",
            context={"index": name},
        )
    return index


def _class_of(name: str) -> Any:
    if name in _BUILT_IN:
        module, _, class_name = _BUILT_IN[name].partition(":")
        return getattr(import_module(module), class_name)
    index_class = _third_party(name)
    if index_class is None:
        raise _unknown(name)
    return index_class


def _third_party(name: str) -> Any:
    return next((point.load() for point in plugins(ENTRY_POINTS) if point.name == name), None)


def _unknown(name: str) -> InvalidOption | UnsupportedFeature:
    if name in _OF_OTHER_ENGINES:
        return UnsupportedFeature(
            f"index {name!r} is known, but this version of lakebed does not have it",
            hint="take bucket, bucket_groups, consistent, bloom, global_bloom, simple, global_simple, record or hbase",
            context={"feature": f"index {name}"},
        )
    if name == "auto":
        return InvalidOption(
            "'auto' chooses the index of a new table, and this one has rows",
            hint="t.indexes.advise() compares the indexes for its rows; name the one to take",
            context={"index": name},
        )
    names = sorted({*_BUILT_IN, "auto", *_OF_OTHER_ENGINES, *(point.name for point in plugins(ENTRY_POINTS))})
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    available_names = ", ".join(["auto", *(n for n, dotted in _BUILT_IN.items() if dotted != _RECORD or n == "record")])
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return InvalidOption(
        f"there is no index {name!r}",
        hint=f"{suggestion}lakebed has {available_names} and what is registered as {ENTRY_POINTS}",
        context={"index": name, "nearest": near[0] if near else None},
    )


def check_new_indexes(names: Sequence[IndexName], config: TableConfig, schema: pa.Schema, index: Index) -> None:
    """Raise `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for a new index that the table cannot have next
    to its existing indexes and the other `names`. `index` is the index that writes use."""
    partitions = {*config.metadata_partitions, *(name.partition for name in (*names, *index.metadata_indexes))}
    for name in names:
        kind_of(name.partition).check_new(
            NewIndex(name, config, schema, partitions, index.name, has_unique_keys=index.is_global)
        )
