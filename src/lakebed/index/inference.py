"""The index of a table that does not remember it (real Hudi records none): file ids nominate, stored keys decide."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import key_list_hash
from lakebed.index.base import Index
from lakebed.index.bloom.index import BloomIndex, GlobalBloomIndex
from lakebed.index.bucket import BucketIndex, SampledSlice, check_all_keys, field_choices, number_slices, sample_slices
from lakebed.index.bucket_counts import BucketCounts, parse_rules, read_counts
from lakebed.index.bucket_groups import BucketGroupsIndex
from lakebed.index.consistent.index import consistent_of_rings
from lakebed.index.consistent.ring_files import has_rings
from lakebed.index.record import RecordIndex
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex, SimpleIndexForFlink
from lakebed.slices.snapshot import Snapshot

_log = logging.getLogger(__name__)

# More buckets in a partition than anyone has: an id with a greater number starts with 8 digits by chance.
_PLAUSIBLE = 1 << 16
_PREVIEWED = 4
# File ids of Spark's writers have a number behind, as in `...-0`.
_FLINK_FILE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# An index that looks stored keys up finds them on any table.
_RIGHT_FOR_ANY = {index.name: index for index in (SimpleIndex, BloomIndex)}
_GLOBAL_AND_RIGHT = {index.name: index for index in (GlobalSimpleIndex, GlobalBloomIndex)}
_SIGN_OFF = np.int32(0x7FFFFFFF)
_ADOPT = "t.indexes.adopt('bucket', buckets=..., hash_fields=[...]) or t.indexes.adopt('simple')"


def infer_index(snapshot: Snapshot, *, for_write: bool = True) -> Index:
    """The index of a table without `lakebed.index.*` properties.

    A bucket index where all file ids are bucket numbers and every sampled key hashes to its file's number under just
    one (hash fields, count); else the record index where the metadata table has one; else Hudi's own default, simple,
    with one warning a table. For a write, a table that several bucket counts fit is refused (`InvalidOption` that
    names `adopt`), as is one with another bucket count in each partition.
    """
    config = snapshot.config
    if has_rings(snapshot.storage):
        return consistent_of_rings(snapshot)
    nominated = _ids_are_numbers(snapshot)
    fitting = _fitting(snapshot) if nominated else []
    if len(fitting) == 1:
        return fitting[0]
    if nominated and not fitting:
        fitting = _fitting_by_partition(snapshot)
        if len(fitting) == 1:
            return fitting[0]
    if for_write:
        if fitting:
            raise _ambiguous(config.name, fitting)
        if nominated:
            _refuse_counts_by_partition(snapshot)
    recorded = RecordIndex.of_metadata(snapshot)
    if recorded is not None:
        return recorded
    ids = [file_slice.file_id for file_slice in snapshot.file_slices()]
    has_ids_of_flink = any(_FLINK_FILE_ID.fullmatch(file_id) for file_id in ids)
    is_of_flink = not nominated and (config.is_of_flink or has_ids_of_flink)
    if for_write:
        _warn_of_simple(snapshot.storage.spec.uri, config.name, nominated, is_of_flink)
    return SimpleIndexForFlink() if is_of_flink and config.partition_fields else SimpleIndex()


def check_requested(snapshot: Snapshot, requested: Index) -> None:
    """Check the index that a job's options name against a table that records no index, by a sample of its stored keys.

    A bucket index has to agree with file ids and keys (`IndexInconsistent`); any other is refused (`InvalidOption`) on
    a table whose ids and keys are those of a bucket index.
    """
    if has_rings(snapshot.storage) and requested.resizing is None:
        raise InvalidOption(
            f"table {snapshot.config.name!r} has consistent-hashing buckets, the write asks for {requested.name}",
            hint="leave the index options out",
            context={"write": dict(requested.settings())},
        )
    if requested.hashing is not None:
        try:
            requested.check(snapshot)
        except IndexInconsistent:
            if _ids_are_numbers(snapshot) and not _fitting(snapshot):
                _refuse_counts_by_partition(snapshot)
            raise
        return
    nominated = _ids_are_numbers(snapshot)
    fitting = _fitting(snapshot) if nominated else []
    if nominated and not fitting:
        _refuse_counts_by_partition(snapshot)
    if len(fitting) > 1:
        raise _ambiguous(snapshot.config.name, fitting)
    if fitting:
        fit = fitting[0]
        raise InvalidOption(
            f"the stored keys of table {snapshot.config.name!r} are those of a bucket index ({fit.buckets} buckets"
            f" hashed on {', '.join(fit.fields)}), the write asks for {requested.name}",
            hint="leave the index options out, or name that bucket index; t.indexes.adopt('simple') gives buckets up",
            context={"table": dict(fit.settings()), "write": dict(requested.settings())},
        )
    requested.check(snapshot)


def fitting_buckets(
    files: Sequence[SampledSlice], key_fields: Sequence[str], highest: int, limit: int = _PLAUSIBLE
) -> list[BucketIndex]:
    """Every bucket index (hash fields, count up to `limit`) that puts all sampled keys where they are.

    A count fits if it divides hash - bucket for every key, that is their greatest common divisor, and is greater than
    the `highest` bucket number seen. Hash fields that give all sampled keys the same hashes count once; of many counts
    the first few are given.
    """
    files = [f for f in files if len(f.keys)]
    numbers = np.repeat(np.array([f.bucket for f in files], np.int64), np.array([len(f.keys) for f in files], np.int64))
    keys = pa.concat_arrays([f.keys for f in files]) if files else pa.array([], pa.string())
    indexes: list[BucketIndex] = []
    distinct_hashes: list[npt.NDArray[np.int64]] = []
    for fields in field_choices(key_fields):
        hashes = (key_list_hash(keys, fields) & _SIGN_OFF).astype(np.int64)
        if any(np.array_equal(hashes, earlier_hashes) for earlier_hashes in distinct_hashes):
            continue
        distinct_hashes.append(hashes)
        common = int(np.gcd.reduce(np.abs(hashes - numbers))) if len(hashes) else 0
        counts = np.arange(highest + 1, limit + 1)
        indexes += [BucketIndex(int(n), fields) for n in counts[common % counts == 0][: _PREVIEWED + 1]]
    return indexes


def adopt(
    snapshot: Snapshot,
    kind: str | Index,
    *,
    buckets: int | None = None,
    fields: Sequence[str] = (),
    update_partition_path: bool = True,
    partition_buckets: str = "",
) -> Index:
    """The index a user names for a table that Hudi made, checked against all stored keys; the caller records it.

    A bucket index has to agree with every key of every latest base file (only that column is read), else
    `IndexInconsistent` names the first file and key that disagree. A simple or a bloom index is right for any table.
    A record index is the one that the metadata table has, or is built by the next write. An object checks itself.
    """
    if not isinstance(kind, str):
        index = kind.resolved(snapshot.config.key_fields)
        index.check(snapshot)
        return index
    kind = kind.strip().lower()
    if kind in _RIGHT_FOR_ANY:
        return _RIGHT_FOR_ANY[kind]()
    if kind in _GLOBAL_AND_RIGHT:
        return _GLOBAL_AND_RIGHT[kind](update_partition_path)
    if kind in RecordIndex.NAMES:
        return RecordIndex.of_metadata(snapshot) or RecordIndex(partitioned=RecordIndex.NAMES[kind])
    if kind == "consistent":
        return consistent_of_rings(snapshot, fields)
    if kind not in (BucketIndex.name, BucketGroupsIndex.name):
        raise InvalidOption(
            f"index {kind!r} cannot be adopted",
            hint="adopt bucket, bucket_groups, consistent, bloom, global_bloom, simple, global_simple or record",
            context={"index": kind},
        )
    if buckets is None:
        raise InvalidOption(
            "adopting a bucket index takes its number of buckets",
            hint="give buckets= as in the jobs that wrote the table (hoodie.bucket.index.num.buckets, 256 if not set)",
            context={"index": kind},
        )
    adopted = BucketIndex if kind == BucketIndex.name else BucketGroupsIndex
    index = adopted(buckets, tuple(fields), parse_rules(partition_buckets)).resolved(snapshot.config.key_fields)
    if not snapshot.config.populate_meta_fields:
        raise UnsupportedFeature(
            f"table {snapshot.config.name!r} stores no record keys (hoodie.populate.meta.fields=false)",
            hint="an index serves upserts and deletes, which need stored keys; nothing has to be adopted for inserts",
            context={"feature": "no meta fields"},
        )
    index.check(snapshot)
    check_all_keys(snapshot, index)
    return index


def _fitting(snapshot: Snapshot) -> list[BucketIndex]:
    return fitting_buckets(sample_slices(snapshot), snapshot.config.key_fields, _highest(snapshot))


def _fitting_by_partition(snapshot: Snapshot) -> list[BucketIndex]:
    """The bucket indexes that fit the files in which real Hudi stores the bucket counts of partition paths; empty if
    the table has no such file."""
    counts = read_counts(snapshot)
    if counts is None:
        return []
    indexes: list[BucketIndex] = []
    for fields in field_choices(snapshot.config.key_fields):
        index = BucketIndex(counts.count, fields, counts.rules)
        try:
            index.check(snapshot)
        except IndexInconsistent:
            continue
        indexes.append(index)
    return indexes


def _refuse_counts_by_partition(snapshot: Snapshot) -> None:
    """Raise an error for a table in which every partition path fits a bucket count, but no single count fits all of
    them under one choice of hash fields.

    Real Hudi's Spark writer leaves no other trace of partition-level buckets: the user has to name the rules.
    """
    highest: dict[str, int] = {}
    for file_slice in snapshot.file_slices():
        number = bucket_of_file_id(file_slice.file_id) or 0
        highest[file_slice.partition] = max(number, highest.get(file_slice.partition, 0))
    sampled: dict[str, list[SampledSlice]] = {}
    for file in sample_slices(snapshot):
        sampled.setdefault(file.label.rpartition("/")[0], []).append(file)
    fields = set(field_choices(snapshot.config.key_fields))
    for partition, files in sampled.items():
        fields &= {i.fields for i in fitting_buckets(files, snapshot.config.key_fields, highest.get(partition, 0))}
    if fields and len(sampled) > 1:
        raise InvalidOption(
            f"table {snapshot.config.name!r} has another bucket count in each partition, and nothing in it says by"
            " which rules",
            hint="Give them once: t.indexes.adopt('bucket', buckets=..., partition_buckets='regex,count;...'), as the"
            " jobs that wrote it have them (hoodie.bucket.index.partition.expressions).",
            context={"table": snapshot.config.name},
        )


def _ids_are_numbers(snapshot: Snapshot) -> bool:
    """Whether every file id can be a bucket number, for a table whose stored keys can be checked."""
    if not (snapshot.config.populate_meta_fields and snapshot.config.key_fields):
        return False
    try:
        return bool(number_slices(snapshot.file_slices(), BucketCounts(_PLAUSIBLE)))
    except IndexInconsistent:
        return False


def _highest(snapshot: Snapshot) -> int:
    return max(bucket_of_file_id(s.file_id) or 0 for s in snapshot.file_slices())


def _ambiguous(name: str, fitting: Sequence[BucketIndex]) -> InvalidOption:
    fits = "; ".join(f"{i.buckets} buckets on {', '.join(i.fields) or 'the key'}" for i in fitting[:_PREVIEWED])
    more = " and more" if len(fitting) > _PREVIEWED else ""
    return InvalidOption(
        f"table {name!r} looks like a bucket table, but its stored keys fit more than one bucket index: {fits}{more}",
        hint="name the right one, once: t.indexes.adopt('bucket', buckets=..., hash_fields=[...]), with the"
        " numbers of the"
        " jobs that wrote it",
        context={"candidates": [dict(i.settings()) for i in fitting[:_PREVIEWED]]},
    )


@cache
def _warn_of_simple(uri: str, name: str, nominated: bool, is_of_flink: bool) -> None:
    """Warn once per table in this process that its index is unknown: only a bucket index leaves traces in the files."""
    if is_of_flink:
        _log.warning(
            "table %r (%s) was made by Flink, and nothing in it shows its index. Flink's default, FLINK_STATE with"
            " index.global.enabled=true, keeps a key once in the table; lakebed looks keys up within their partition"
            " path, and refuses a row whose key is in another one. Adopt the right index:"
            " t.indexes.adopt('global_simple') for that default, t.indexes.adopt('simple') for"
            " index.global.enabled=false",
            name,
            uri,
        )
        return
    looks = (
        "its file ids look like bucket numbers but its keys do not hash to them"
        if nominated
        else "nothing in it shows which index it was written with"
    )
    _log.warning(
        "table %r (%s): %s; lakebed takes Hudi's default, the simple index, which looks keys up within their"
        " partition path. If that is not right, adopt the right one: %s (or 'global_simple')",
        name,
        uri,
        looks,
        _ADOPT,
    )
