"""How the rows of a table are in the buckets of their keys, and whether two tables' buckets are the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

import pyarrow as pa

from lakebed.engine.spark_layout import FAMILY, KEY
from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.expressions.key_generators import PLAIN, KeyGenerator
from lakebed.expressions.key_text import CompositeKey, KeyText, SingleKey
from lakebed.expressions.plain_keys import unhashed_texts
from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.registry import index_of
from lakebed.model import FileSlice
from lakebed.read.keys import bucket_layout
from lakebed.read.plan import table_columns
from lakebed.slices.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Deciding:
    """The columns that decide the bucket. Tables of one `family` have the same hash: equal values of their columns, in
    this order, have one hash in both."""

    columns: tuple[str, ...]
    family: str


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a table: rows with equal values of the `deciding` columns are in one bucket of `count`, in any
    partition path.

    These columns are the hash fields, or the complete key if another key field may hold text that Hudi's parser takes
    for a hash field. `narrow` are the hash fields where no key of the table can be misread, else `unsure` counts the
    file slices that do not rule it out.
    """

    table: str
    count: int
    deciding: Deciding
    keys: KeyGenerator
    hash_fields: tuple[str, ...]
    narrow: Deciding | None = None
    unsure: int = 0

    @property
    def choices(self) -> tuple[Deciding, ...]:
        """The columns that decide the bucket, the fewest first."""
        return (self.deciding,) if self.narrow is None else (self.narrow, self.deciding)

    def about(self, count: int) -> dict[str, object]:
        """The metadata of a column with the bucket of `count`: how it is computed, and from which columns."""
        return about_bucket(count, self.choices)

    def number(self, file_slice: FileSlice) -> int:
        """The bucket of a file slice."""
        number = bucket_of_file_id(file_slice.file_id)
        if number is None or number >= self.count:
            raise IndexInconsistent(
                f"file group {file_slice.file_id} of table {self.table!r} is none of its {self.count} buckets",
                hint="another writer made it, or the view is older than the table's number of buckets: read without"
                " bucketed=, or adopt the index with t.indexes.adopt",
                context={"file_id": file_slice.file_id, "buckets": self.count},
            )
        return number


def buckets_of(snapshot: Snapshot) -> Buckets:
    """The buckets of a table's rows. Raises `UnsupportedFeature` if they do not follow from the key alone."""
    config, schema = snapshot.config, table_columns(snapshot)
    layout = bucket_layout(snapshot, schema)
    count = None if layout is None else layout.locations.modulo
    if layout is None or count is None:
        raise UnsupportedFeature(
            f"the rows of table {config.name!r} are not in buckets of their keys (its index is"
            f" {config.index_settings.get('type', 'not recorded')})",
            hint="make it with index='bucket', or adopt the index of a table that Hudi made with"
            " t.indexes.adopt('bucket', buckets=...)",
            context={"table": config.name},
        )
    if snapshot.as_of is not None:  # the table may have had other buckets then
        index_of(snapshot, for_write=False).check(snapshot)
    keys, hashed = config.keys, layout.locations.fields
    owner = snapshot.storage.url() if snapshot.key_form == PLAIN else ""  # a colon in it may be read otherwise

    def deciding(columns: Sequence[str]) -> Deciding:
        return Deciding(tuple(columns), _family(keys, hashed, columns, schema, owner))

    if not unhashed_texts(keys, hashed, schema):
        return Buckets(config.name, count, deciding(hashed), keys, hashed)
    slices = snapshot.file_slices()
    unsure = len(slices) - (sum(layout.plain(slices)) if layout.plain is not None else 0)
    narrow = None if unsure else deciding(hashed)
    return Buckets(config.name, count, deciding(keys.key_fields), keys, hashed, narrow, unsure)


def about_bucket(count: int, choices: Iterable[Deciding]) -> dict[str, object]:
    """The metadata of a column with the bucket of `count` that each choice of these columns decides alone."""
    metadata: dict[str, object] = {}
    for number, choice in enumerate(choices):
        metadata |= {f"{FAMILY}.{number}": f"{choice.family} / {count}", f"{KEY}.{number}": list(choice.columns)}
    return metadata


def equal_columns(buckets: Buckets, other: Buckets) -> list[tuple[Deciding, Deciding]]:
    """The columns of both that have one hash, the fewest first. Raises `InvalidOption` if there are none."""
    pairs = [(a, b) for a in buckets.choices for b in other.choices if a.family == b.family]
    if not pairs:
        raise InvalidOption(
            f"the buckets of {buckets.table!r} (hashed on {', '.join(buckets.deciding.columns)}) and {other.table!r}"
            f" (hashed on {', '.join(other.deciding.columns)}) are not made the same way",
            hint="the key columns must have the same types, and texts the same names and key generator, since Hudi's"
            " hash reads names in a key; join the scans as they are",
            context={"left": buckets.table, "right": other.table},
        )
    return pairs


def common_count(buckets: Buckets, other: Buckets) -> int:
    """The number of buckets that both counts are multiples of. Raises `InvalidOption` if their hashes differ."""
    equal_columns(buckets, other)
    return gcd(buckets.count, other.count)


def texts_of(keys: KeyGenerator) -> tuple[KeyText, ...]:
    """The texts from which a record key is made; empty for a user-defined key."""
    match keys.record_key:
        case SingleKey(text):
            return (text,)
        case CompositeKey(texts):
            return texts
        case _:
            return ()


def _family(keys: KeyGenerator, hashed: Sequence[str], columns: Sequence[str], schema: pa.Schema, owner: str) -> str:
    """A text that is equal for tables with the same hash: everything except the values that the hash depends on. It has
    the names of the key columns only if they are texts, since values with a comma or colon may be read as names."""
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
