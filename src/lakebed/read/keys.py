"""Keys as the read side needs them: the table's key generator, the keys and values that a filter demands, the file
groups of keys by the record index, and file slices whose keys Hudi's parser cannot misread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.expressions.key_generators import KeyGenerator, key_generator
from lakebed.expressions.plain_keys import has_plain_keys, unhashed_texts
from lakebed.format.footer_cache import FOOTERS
from lakebed.index.registry import recorded_index, recorded_settings
from lakebed.metadata.lookups import keys_by_group
from lakebed.metadata_records.layout import FILES, METADATA_FOLDER
from lakebed.model import RECORD_INDEX, RECORD_KEY, BaseFile, FileSlice, has_completion_times
from lakebed.properties.table_config import TableConfig, key_generator_spec
from lakebed.read.prune import MAX_KEYS, Alternative, BucketLayout, PartitionLayout, equalities, has_one_text, key_rows
from lakebed.schema.java_text import to_java_text
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.storage.base import Storage
from lakebed.storage.parallel import at_once, is_remote, parallel_map

if TYPE_CHECKING:
    from lakebed.filters.predicates import Literal, Predicate
    from lakebed.slices.metadata_lookups import MetadataLookups
    from lakebed.timeline.plain_keys import CoveredSlices

# Footers that are read for files that no commit describes.
MAX_FOOTERS = 64
_READERS = 16


@dataclass(frozen=True)
class PlainSlices:
    """A search for the file slices whose keys cannot be misread, from the newest commit that records it, and the
    footers of the files that it does not cover.

    `fields` are the key fields with free text that are not hashed.
    """

    snapshot: Snapshot
    fields: tuple[str, ...]

    def among(self, slices: Sequence[FileSlice]) -> list[bool]:
        """Flags of the file slices whose keys cannot be misread."""
        covered = self._covered
        if covered is None:
            return [False] * len(slices)
        flags = [covered.has(file_slice) for file_slice in slices]
        unknown_files = [
            (at, file_slice.base_file)
            for at, file_slice in enumerate(slices)
            if not flags[at] and file_slice.base_file is not None and covered.has_logs(file_slice.log_files)
        ]
        if len(unknown_files) <= MAX_FOOTERS:
            for (at, _), says in zip(
                unknown_files, parallel_map(self._says, [file for _, file in unknown_files], _READERS), strict=True
            ):
                flags[at] = says
        return flags

    @once
    def _covered(self) -> CoveredSlices | None:
        from lakebed.timeline.plain_keys import CoveredSlices

        snapshot = self.snapshot
        by_name = has_completion_times(snapshot.config.version) and snapshot.index_settings.get("type") == "bucket"
        return CoveredSlices.of(snapshot.timeline, snapshot.commits, self.fields, logs_by_name=by_name)

    def _says(self, base: BaseFile) -> bool:
        footer = FOOTERS.read(self.snapshot.storage, base.path, base.size).footer
        return has_plain_keys(footer.key_values, self.fields)


def key_encodings(config: TableConfig) -> tuple[KeyGenerator, ...]:
    """The forms in which the stored keys may be written: one form, except for complex keys of a single field."""
    if config.keys.kind == "COMPLEX" and len(config.key_fields) == 1:
        return config.keys, key_generator(key_generator_spec(config, single_field_prefix=False))
    return (config.keys,)


def _key_generator(config: TableConfig) -> KeyGenerator | None:
    """The key generator; None for an unknown one, whose table is read without pruning."""
    try:
        return config.keys
    except (UnsupportedFeature, InvalidOption):
        return None


def partition_paths_may_be_stale(storage: Storage, config: TableConfig) -> bool:
    """Whether a row may be in another partition path than that of its columns: under a global index that leaves a row
    in its path when the columns change.

    Real Hudi does not record its index, but a record index shows in its metadata table: by default that one leaves rows
    where they are. (Its own readers show the path's value in the partition column then.)
    """
    from lakebed.metadata_kinds.key_changes import KeyIndexes
    from lakebed.timeline.index_changes import noted_changes

    settings = config.index_settings
    if "type" in settings:
        # rows that stayed under an index that the table had before are still where they were
        settings_history = [settings, *(s for change in noted_changes(config) for s in (change.before, change.after))]
        return any(version.get("update_partition", "true").lower() == "false" for version in settings_history)
    indexes = KeyIndexes.of(storage, config)
    return indexes.record_index and not indexes.partitioned


def partition_layout(config: TableConfig, schema: pa.Schema) -> PartitionLayout | None:
    """The way in which partition paths are made from columns; None if it is unknown, or the table has no partitions or
    a user-defined key generator."""
    from lakebed.expressions.partition_paths import ValuePart

    keys = _key_generator(config)
    if not config.partition_fields or keys is None:
        return None
    parts = keys.partition_path.parts
    types = {f: schema.field(f).type for f in keys.partition_fields if f in schema.names}

    def path_of(field: str, literal: Literal) -> str | None:
        if len(parts) != 1 or not _same_for_every_writer(keys, literal.type):
            return None
        row = pa.RecordBatch.from_arrays([pa.array([literal.value], literal.type)], names=[field])
        return keys.partition_path.arrow(row)[0].as_py()

    return PartitionLayout(
        fields=keys.partition_fields,
        types=types,
        plain=tuple(isinstance(p, ValuePart) for p in parts),
        hive_style=config.hive_style,
        url_encode=config.url_encode,
        slash_dates=config.slash_dates and not config.hive_style,
        path_of=path_of,
    )


def _same_for_every_writer(keys: KeyGenerator, type_: pa.DataType) -> bool:
    """Whether equal values have one path, whatever the writer's time zone and code path were."""
    from lakebed.expressions.partition_paths import ValuePart
    from lakebed.expressions.timestamp import TimestampPart

    part = keys.partition_path.parts[0]
    if isinstance(part, ValuePart):
        return pa.types.is_decimal(type_)
    return isinstance(part, TimestampPart) and part.settings.output_zone is not None and pa.types.is_integer(type_)


def bucket_layout(snapshot: Snapshot, schema: pa.Schema) -> BucketLayout | None:
    """The way in which keys are distributed over file groups, by the index that a view of the table records; None for
    an index that looks keys up, or without an index."""
    config = snapshot.config
    if not config.key_fields or _key_generator(config) is None:
        return None
    index = recorded_index(recorded_settings(snapshot), missing_ok=True)
    hashing = None if index is None else index.resolved(config.key_fields).hashing
    locations = None if hashing is None else hashing.key_locations(snapshot)
    if locations is None:
        return None
    encodings = key_encodings(config)

    def key_texts(rows: pa.Table) -> pa.Array:
        return pa.concat_arrays([keys.key_text_of(rows) for keys in encodings])

    types = {f: schema.field(f).type for f in config.key_fields if f in schema.names}
    plain = None
    if set(config.key_fields) <= types.keys() and (unhashed := unhashed_texts(encodings[0], locations.fields, schema)):
        plain = PlainSlices(snapshot, unhashed).among
    return BucketLayout(tuple(config.key_fields), types, key_texts, locations, plain)


Group = tuple[str, str]


@dataclass(frozen=True)
class IndexedKeys:
    """The answer of the record index: one row of `locations` for each key and location (`key`, `partition`,
    `file_id`)."""

    locations: pa.Table

    @once
    def groups(self) -> Mapping[Group, pa.Array]:
        """The file groups that hold a key, by partition path and file id, each with its keys in ascending order."""
        keys, partitions, files = (self.locations[name].combine_chunks() for name in ("key", "partition", "file_id"))
        paths, ids = partitions.dictionary_encode(), files.dictionary_encode()
        order = pc.sort_indices(keys)
        pairs = as_numpy(paths.indices).astype(np.int64) * len(ids.dictionary) + as_numpy(ids.indices)
        distinct, codes = np.unique(pairs[as_numpy(order)], return_inverse=True)
        path, file_id = np.divmod(distinct, max(1, len(ids.dictionary)))
        groups = zip(paths.dictionary.take(path).to_pylist(), ids.dictionary.take(file_id).to_pylist(), strict=True)
        return dict(zip(groups, keys_by_group(keys.take(order), codes, len(distinct)), strict=True))

    def slices(self, snapshot: Snapshot) -> list[FileSlice] | None:
        """The file slices of these groups; None if the view does not have one of them, so that the index cannot be
        relied on."""
        groups = self.groups.keys()
        if not groups:
            return []
        candidates = snapshot.file_slices({p for p, _ in groups}, groups_of_ids({file_id for _, file_id in groups}))
        slices = [s for s in candidates if (s.partition, s.file_id) in groups]
        return slices if len(slices) == len(groups) else None

    def of_pairs(self, pairs: pa.Table) -> IndexedKeys:
        """The locations whose `key` and `partition` are a row of `pairs`."""
        return IndexedKeys(self.locations.join(pairs, ["key", "partition"], join_type="left semi"))


def usable_record_index(snapshot: Snapshot) -> MetadataLookups | None:
    """The metadata table, if its record index can answer for this view: the view is the newest, the index exists, and
    no key is stored twice. Otherwise None."""
    metadata = snapshot.metadata
    if metadata is None or not metadata.has(RECORD_INDEX) or not snapshot.is_latest:
        return None
    try:
        if is_remote(snapshot.storage):
            parallel_map(metadata.slices.file_slices, [RECORD_INDEX, FILES])
        return metadata if metadata.slices.file_slices(RECORD_INDEX) and not snapshot.repeats_keys else None
    except CorruptFile:
        # a writer of another engine may be taking the index away just now, and the folder goes first
        if any(snapshot.storage.list_names(f"{METADATA_FOLDER}/{RECORD_INDEX}")):
            raise
        return None


def find_keys(snapshot: Snapshot, keys: Any, partitions: Collection[str] | None = None) -> IndexedKeys | None:
    """The locations of the keys, in some partition paths or in all; None if no record index can answer, for example
    because it is being dropped or built."""
    with metadata_damage_named(snapshot.storage):
        try:
            metadata = usable_record_index(snapshot)
            if metadata is None:
                return None

            def located(metadata: MetadataLookups = metadata) -> pa.Table:
                metadata.open_ahead([RECORD_INDEX])
                if partitions is None or not _is_partitioned(metadata):
                    return metadata.record_locations(keys)
                return _joined(metadata.record_locations(keys, partition) for partition in partitions)

            # who has the locations asks for their file slices
            locations, _ = at_once(snapshot.storage, located, lambda: metadata.open_ahead([FILES]))
        except (CorruptFile, FileNotFoundError):
            if snapshot.metadata is not None and snapshot.metadata.slices.has_other_partitions():
                return None
            raise
    if partitions is not None:
        locations = locations.filter(
            pc.is_in(locations["partition"], value_set=pa.array(list(partitions), pa.string()))
        )
    return IndexedKeys(_plain(locations.select(["key", "partition", "file_id"])))


def _is_partitioned(metadata: MetadataLookups) -> bool:
    from lakebed.metadata_kinds.record_index import data_partition_of

    return data_partition_of(metadata.slices.file_slices(RECORD_INDEX)[0].file_id) is not None


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    from lakebed.metadata_kinds import record_index

    parts = list(tables)
    return pa.concat_tables(parts).unify_dictionaries() if parts else record_index.SCHEMA.empty_table()


def _plain(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([pa.field(name, pa.string()) for name in table.column_names]))


def demanded_keys(predicate: Predicate, config: TableConfig, schema: pa.Schema) -> pa.Array | None:
    """The distinct texts of the record keys that matching rows can have; None if the filter does not determine them.

    The filter names the stored key, or every field of the key by constants of types with one text a value.
    """
    stored = equalities(predicate.root, frozenset((RECORD_KEY,))) if config.populate_meta_fields else None
    if stored is not None:
        texts = [v.value for alternative in stored for v in alternative[RECORD_KEY]]
        return _distinct(pa.array(texts, pa.string())) if len(texts) <= MAX_KEYS else None
    fields = config.key_fields
    types = {f: schema.field(f).type for f in fields if f in schema.names}
    if not fields or len(types) < len(fields) or not all(map(has_one_text, types.values())):
        return None
    alternatives = equalities(predicate.root, frozenset(fields))
    if alternatives is None:
        return None
    return _key_texts(alternatives, config, types)


def _key_texts(
    alternatives: Sequence[Alternative], config: TableConfig, types: Mapping[str, pa.DataType]
) -> pa.Array | None:
    encodings = key_encodings(config)
    texts: list[pa.Array] = []
    count = 0
    for alternative in alternatives:
        columns: dict[str, list[Any]] = {}
        rows = 1
        for field in types:
            if field not in alternative:
                return None
            columns[field] = [v.value for v in alternative[field]]
            rows *= len(columns[field])
        count += rows
        if count > MAX_KEYS:
            return None
        table = key_rows(columns, types)
        texts += [keys.key_text_of(table) for keys in encodings]
    return _distinct(pa.concat_arrays(texts)) if texts else pa.array([], pa.string())


def demanded_values(predicate: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    """The texts of a secondary index for the values that a column of matching rows can have (a null among them means
    null); None if the filter does not determine them, or the type has several texts per value."""
    texts_of = _TEXTS.get(_kind(kind))
    if texts_of is None:
        return None
    alternatives = equalities(predicate.root, frozenset((column,)))
    if alternatives is None:
        return None
    literals: list[Literal] = [v for alternative in alternatives for v in alternative[column]]
    if len(literals) > MAX_KEYS:
        return None
    return _distinct(texts_of(pa.array([v.value for v in literals], kind)))


def _distinct(texts: pa.Array) -> pa.Array:
    return texts.unique()


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_date32(kind):
        return "date"
    return "micros" if pa.types.is_timestamp(kind) and kind.unit == "us" else ""


_TEXTS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "integer": to_java_text,
    "text": lambda values: values,
    "date": lambda values: values.cast(pa.int32()).cast(pa.string()),
    "micros": to_java_text,
}
