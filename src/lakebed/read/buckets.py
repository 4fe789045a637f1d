"""How the rows of a table lie in the buckets of their keys, and whether two tables' buckets are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import pyarrow as pa

from lakebed.engine.spark_layout import FAMILY, KEY
from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.expressions.key_text import KeyText
from lakebed.expressions.record_keys import CompositeKey, SingleKey
from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.registry import index_of
from lakebed.model import FileSlice
from lakebed.read.plan import table_columns
from lakebed.read.table_keys import bucket_layout, key_encodings, key_generator_of
from lakebed.slices.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Buckets:
    """Rows with equal values of `columns` lie in one bucket of `count`, in whatever partition path.

    Tables of one `family` have the same hash: equal values of their columns, in this order, have one hash in both.
    """

    table: str
    count: int
    columns: tuple[str, ...]
    family: str
    keys: KeyGenerator
    hash_fields: tuple[str, ...]

    def about(self, count: int, columns: Sequence[str] = ()) -> dict[str, object]:
        """What a column with the bucket of `count` tells of itself: how it is made, and of which columns."""
        return {FAMILY: f"{self.family} / {count}", KEY: list(columns or self.columns)}

    def number(self, file_slice: FileSlice) -> int:
        """The bucket of a file slice."""
        found = bucket_of_file_id(file_slice.file_id)
        if found is None or found >= self.count:
            raise IndexInconsistent(
                f"file group {file_slice.file_id} of table {self.table!r} is none of its {self.count} buckets",
                hint="another writer made it, or the view is older than the table's number of buckets: read without"
                " bucketed=, or tell the index with t.indexes.adopt",
                context={"file_id": file_slice.file_id, "buckets": self.count},
            )
        return found


def buckets_of(snapshot: Snapshot) -> Buckets:
    """The buckets of a table's rows; `UnsupportedFeature` where they do not follow from the key alone."""
    config, schema = snapshot.config, table_columns(snapshot)
    layout = bucket_layout(snapshot, schema)
    count = None if layout is None else layout.places.modulo
    if layout is None or count is None:
        raise UnsupportedFeature(
            f"the rows of table {config.name!r} do not lie in buckets of their keys (its index is"
            f" {config.index_settings.get('type', 'not recorded')})",
            hint="make it with index='bucket', or tell the index of a table that Hudi made with"
            " t.indexes.adopt('bucket', buckets=...)",
            context={"table": config.name},
        )
    if snapshot.as_of is not None:  # the table may have had other buckets then
        index_of(snapshot, for_write=False).check(snapshot)
    keys, hashed = key_generator_of(config), layout.places.fields
    columns = _deciding_columns(keys, hashed, schema)
    owner = snapshot.storage.url() if len(key_encodings(config)) > 1 else ""
    return Buckets(config.name, count, columns, _family(keys, hashed, columns, schema, owner), keys, hashed)


def common_count(one: Buckets, other: Buckets) -> int:
    """The number of buckets into which both fall: that of one where the other has a multiple of it. `InvalidOption`
    where their hashes differ."""
    if one.family != other.family:
        raise InvalidOption(
            f"the buckets of {one.table!r} (hashed on {', '.join(one.columns)}) and {other.table!r} (hashed on"
            f" {', '.join(other.columns)}) are not made alike",
            hint="the key columns must have the same types, and texts the same names and key generator, since Hudi's"
            " hash reads names in a key; join the scans as they are",
            context={"left": one.table, "right": other.table},
        )
    return gcd(one.count, other.count)


def texts_of(keys: KeyGenerator) -> tuple[KeyText, ...]:
    """The texts that a record key is made of."""
    match keys.record_key:
        case SingleKey(text):
            return (text,)
        case CompositeKey(texts):
            return texts
        case _:
            return ()


def _deciding_columns(keys: KeyGenerator, hashed: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """The columns whose values decide the bucket: the hash fields, but the whole key where a text beside them can hold
    what Hudi's parser takes for one of them."""
    others = [text for text in texts_of(keys) if text.column not in hashed]
    if any(text.is_free_text(schema) for text in others):
        return tuple(keys.key_fields)
    return tuple(hashed)


def _family(keys: KeyGenerator, hashed: Sequence[str], columns: Sequence[str], schema: pa.Schema, owner: str) -> str:
    """Everything that the hash depends on beside the values. The names of the key columns are a part of it for texts
    alone: of their values those with a comma or colon may be read as names."""
    texts = [text for text in texts_of(keys) if text.column in columns]
    types = [
        f"{schema.field(t.column).type} {t.consistent_timestamp} {t.zone if t.consistent_timestamp else ''}"
        for t in texts
    ]
    if any(text.is_free_text(schema) for text in texts):
        kind = type(keys.record_key).__name__
        types += [kind, owner, *keys.key_fields, "hashed", *hashed]
    elif len(hashed) != len(columns):
        types += ["hashed", *(str(columns.index(name)) for name in hashed)]
    return "|".join(types)
