"""A table's key generator as the read side needs it: from its stored settings, for pruning and for lookups."""

from __future__ import annotations

import pyarrow as pa

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.key_generators import KeyGenerator, key_generator
from lakebed.expressions.partition_paths import ValuePart
from lakebed.expressions.plain_keys import texts_beside
from lakebed.expressions.timestamp import TimestampPart
from lakebed.filters.predicates import Literal
from lakebed.index.registry import recorded_index, recorded_settings
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.properties.table_config import TableConfig, key_generator_spec
from lakebed.read.bucket_pruning import BucketLayout
from lakebed.read.plain_keys import PlainSlices
from lakebed.read.pruning import PartitionLayout
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.index_changes import noted_changes

# From this version on a complex key of one field always has the field's name in front.
_PREFIX_VERSION = 9


def key_generator_of(config: TableConfig, *, prefix_of_one: bool = True) -> KeyGenerator:
    """The table's key generator. `prefix_of_one`: a COMPLEX key of one field has the field's name in front."""
    return key_generator(key_generator_spec(config, single_field_prefix=prefix_of_one))


def key_encodings(config: TableConfig) -> tuple[KeyGenerator, ...]:
    """The ways in which the stored keys may be written: one, but for old complex keys of a single field."""
    known = key_generator_of(config)
    if known.kind == "COMPLEX" and len(config.key_fields) == 1 and config.version < _PREFIX_VERSION:
        return known, key_generator_of(config, prefix_of_one=False)
    return (known,)


def _known_keys(config: TableConfig) -> KeyGenerator | None:
    """The key generator, None for one that lakebed does not know: such a table is read without pruning."""
    try:
        return key_generator_of(config)
    except (UnsupportedFeature, InvalidOption):
        return None


def rows_may_stay(storage: Storage, config: TableConfig) -> bool:
    """Whether a row may lie under another partition path than its columns say: under a global index that leaves it
    where it is when they change.

    Real Hudi does not record its index, but a record index shows in its metadata table: by default that one leaves rows
    where they are. (Its own readers show the path's value in the partition column then.)
    """
    settings = config.index_settings
    if "type" in settings:
        # rows that stayed under an index that the table had before are still where they were
        known = [settings, *(s for change in noted_changes(config) for s in (change.before, change.after))]
        return any(one.get("update_partition", "true").lower() == "false" for one in known)
    found = KeyIndexes.of(storage, config)
    return found.record_index and not found.partitioned


def partition_layout(config: TableConfig, schema: pa.Schema) -> PartitionLayout | None:
    """How partition paths come from columns; None where that cannot be told: of a table without partitions, or with a
    key generator of its own."""
    keys = _known_keys(config)
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
    part = keys.partition_path.parts[0]
    if isinstance(part, ValuePart):
        return pa.types.is_decimal(type_)
    return isinstance(part, TimestampPart) and part.settings.output_zone is not None and pa.types.is_integer(type_)


def bucket_layout(snapshot: Snapshot, schema: pa.Schema) -> BucketLayout | None:
    """How keys fall into file groups by the index that a view of the table remembers; None where that looks keys up, or
    there is none."""
    config = snapshot.config
    if not config.key_fields or _known_keys(config) is None:
        return None
    index = recorded_index(recorded_settings(snapshot), missing_ok=True)
    places = None if index is None else index.resolved(config.key_fields).key_places(snapshot)
    if places is None:
        return None
    encodings = key_encodings(config)

    def key_texts(rows: pa.Table) -> pa.Array:
        return pa.concat_arrays([keys.key_text_of(rows) for keys in encodings])

    types = {f: schema.field(f).type for f in config.key_fields if f in schema.names}
    plain = None
    if set(config.key_fields) <= types.keys() and (beside := texts_beside(encodings[0], places.fields, schema)):
        plain = PlainSlices(snapshot, beside).among
    return BucketLayout(tuple(config.key_fields), types, key_texts, places, plain)
