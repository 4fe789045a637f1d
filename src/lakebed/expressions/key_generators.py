"""Hudi's key generators: how a row's record key and partition path come from its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.option_table import KEY_GENERATORS
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict, UnsupportedFeature
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.expressions.key_text import NULL_VALUE, CompositeKey, KeyText, SingleKey
from lakebed.expressions.zones import java_zone
from lakebed.schema.arrow import is_text
from lakebed.schema.column_names import near_or_nothing
from lakebed.wording import key_text

if TYPE_CHECKING:
    from lakebed.expressions.partition_paths import PartitionPath, PathPart

SIMPLE, COMPLEX, NON_PARTITION = "SIMPLE", "COMPLEX", "NON_PARTITION"
NAMED, PLAIN = "named", "plain"
"""The forms of complex keys of one field: `id:1` and `1`."""
TIMESTAMP, CUSTOM, GLOBAL_DELETE = "TIMESTAMP", "CUSTOM", "GLOBAL_DELETE"

# Class names without the package and without Avro in them.
KINDS_OF_CLASSES = {
    **KEY_GENERATORS,
    "GlobalDeleteKeyGenerator": GLOBAL_DELETE,
    "GlobalKeyGenerator": GLOBAL_DELETE,
}
_PACKAGES = ("org.apache.hudi.keygen.", "com.uber.hoodie.", "")
_ONE_PARTITION_FIELD = (SIMPLE, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class KeyGeneratorSpec:
    """The settings from which a table makes keys.

    `kind` is Hudi's enum text (SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM, GLOBAL_DELETE) or a class name of
    Hudi's; empty: inferred as Hudi infers it. No `key_fields`: keys are generated. `partition_types` (SIMPLE or
    TIMESTAMP, one for each partition field) belongs to CUSTOM. `timestamp` holds the `hoodie.keygen.timebased.*`
    settings without that prefix. `complex_single_field_prefix`: COMPLEX with one field writes `f:v`, not `v`
    (always so on version 9). `dropped`: files lack the partition columns. `timezone` replaces the JVM's default
    zone wherever Hudi would use that.
    """

    kind: str
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    partition_types: tuple[str, ...] = ()
    hive_style: bool = False
    url_encode: bool = False
    slash_dates: bool = False
    dropped: bool = False
    timestamp: Mapping[str, str] = field(default_factory=dict)
    consistent_logical_timestamp: bool = False
    complex_single_field_prefix: bool = True
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """The two expressions of a key generator, and the functions derived from them."""

    kind: str
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    record_key: RowExpression
    partition_path: PartitionPath

    def key_text_of(self, values: Any, schema: pa.Schema | None = None) -> pa.StringArray:
        """The record key texts of given key-field values, as the generator would make them from rows.

        `values` is a table or batch with the key columns (nested fields under their dotted names), or, for a single
        key field, an array, a chunked array or a list. With the table's `schema` values are first cast to its types;
        what cannot be cast is InvalidOption. A row that has no key gives null.

        >>> keys = key_generator(KeyGeneratorSpec("COMPLEX", ("a", "b")))
        >>> keys.key_text_of(pa.table({"b": ["x"], "a": [1]})).to_pylist()
        ['a:1,b:x']
        """
        table = _key_table(values, self.key_fields, schema).combine_chunks()
        texts = [self.record_key.arrow(batch) for batch in table.to_batches()]
        return pa.concat_arrays(texts) if texts else pa.array([], pa.string())

    def time_texts(self, schema: pa.Schema) -> dict[str, KeyText]:
        """The key fields that are times or dates, with the way in which each becomes a text."""
        return {p.column: p for p in self._texts if pa.types.is_temporal(Column(p.column).type_in(schema))}

    @property
    def _texts(self) -> tuple[KeyText, ...]:
        if isinstance(self.record_key, CompositeKey):
            return self.record_key.texts
        return (self.record_key.text,) if isinstance(self.record_key, SingleKey) else ()

    def readable_text(self, text: str, schema: pa.Schema) -> str:
        """The text of a record key as users write it: with times in place of numbers of microseconds.

        >>> keys = key_generator(KeyGeneratorSpec("COMPLEX", ("a", "at")))
        >>> keys.readable_text("a:1,at:1000000", pa.schema([("a", pa.int64()), ("at", pa.timestamp("us"))]))
        'a:1,at:1970-01-01 00:00:01'
        """
        times = self.time_texts(schema)
        if not times or not isinstance(self.record_key, SingleKey | CompositeKey):
            return text
        try:
            values = self.record_key.values_in(pa.array([text]), schema)
        except (InvalidRecord, SchemaConflict):  # a text of another writer
            return text
        (row,) = values.to_batches()
        texts = [
            _readable(row.column(p.column)[0]) if p.column in times else p.arrow(row)[0].as_py() for p in self._texts
        ]
        if len(texts) == 1:
            return texts[0] or text
        named = zip(self.key_fields, (NULL_VALUE if part is None else part for part in texts), strict=True)
        return key_text(dict(named))

    def determines_keys(self, schema: pa.Schema) -> bool:
        """Whether rows of this schema with equal record keys have equal key fields, except for the cases of several
        fields that `KeyFields` handles."""
        texts = [KeyText(name) for name in self.key_fields]
        return bool(texts) and all(text.determines_values(schema) for text in texts)

    def partition_values(self, path: str) -> dict[str, str | None]:
        """The texts of the partition fields in a path, decoded; null for the default partition.

        Empty if the path does not show where a field ends. A timestamp field's text is the printed time.

        >>> spec = KeyGeneratorSpec("SIMPLE", ("id",), ("city",), hive_style=True)
        >>> key_generator(spec).partition_values("city=__HIVE_DEFAULT_PARTITION__")
        {'city': None}
        """
        return self.partition_path.values(path)


def key_generator(config: KeyGeneratorSpec) -> KeyGenerator:
    """The key generator that a table's settings name. Raises `UnsupportedFeature` for a class that is not one of
    Hudi's."""
    kind = check_field_counts(config)
    partition_path = _partition_path(kind, config)
    texts = tuple([_text(config, name) for name in config.key_fields])
    return KeyGenerator(
        kind=kind,
        key_fields=config.key_fields,
        partition_fields=tuple([part.field for part in partition_path.parts]),
        record_key=_record_key(kind, texts, config.complex_single_field_prefix),
        partition_path=partition_path,
    )


def check_field_counts(config: KeyGeneratorSpec) -> str:
    """The kind of a key generator. Raises `InvalidOption` for a kind that takes one field if several are given, and for
    partition fields of a custom one without a type."""
    kind = kind_of(config.kind) or infer_kind(config.key_fields, config.partition_fields)
    if kind == CUSTOM:
        _custom_fields(config.partition_fields, config.partition_types)
    if kind not in _ONE_PARTITION_FIELD:
        return kind
    if len(config.partition_fields) != 1:
        raise InvalidOption(
            f"the key generator {kind} takes one partition field, not {len(config.partition_fields)}:"
            f" {', '.join(config.partition_fields) or 'none'}",
            hint="Use COMPLEX or CUSTOM for several partition fields, NON_PARTITION for none",
        )
    if len(config.key_fields) > 1:
        raise InvalidOption(
            f"the key generator {kind} takes one key field, not {len(config.key_fields)}:"
            f" {', '.join(config.key_fields)}",
            hint="Use COMPLEX or CUSTOM for several key fields",
        )
    return kind


def kind_of(name: str) -> str:
    """Hudi's enum text for a key generator's type or class name; empty for an empty name.

    >>> kind_of("org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator")
    'TIMESTAMP'
    """
    kinds = set(KINDS_OF_CLASSES.values())
    short_name = name.upper().removesuffix("_AVRO")
    if not name or short_name in kinds:
        return short_name
    for package in _PACKAGES:
        short = name.removeprefix(package)
        for plain in (short.replace("Avro", "", 1), short):
            if plain in KINDS_OF_CLASSES:
                return KINDS_OF_CLASSES[plain]
    raise UnsupportedFeature(
        f"the table's key generator is {name}",
        hint=f"lakebed knows {', '.join(sorted(kinds))}; a class of your own can only run in the JVM",
        context={"key_generator": name},
    )


def infer_kind(key_fields: tuple[str, ...], partition_fields: tuple[str, ...]) -> str:
    """The kind of key generator that Hudi uses if none is named.

    >>> infer_kind(("a", "b"), ("p",))
    'COMPLEX'
    """
    if not partition_fields:
        return NON_PARTITION
    if ":" in partition_fields[0]:
        return CUSTOM
    return SIMPLE if len(partition_fields) == 1 and len(key_fields) <= 1 else COMPLEX


def _text(config: KeyGeneratorSpec, name: str) -> KeyText:
    return KeyText(name, config.consistent_logical_timestamp, java_zone(config.timezone))


def _record_key(kind: str, texts: Sequence[KeyText], prefix_of_one: bool) -> RowExpression:
    if len(texts) == 0:
        return Constant(None)
    if len(texts) > 1 or (kind in (COMPLEX, GLOBAL_DELETE) and prefix_of_one):
        return CompositeKey(tuple(texts))
    return SingleKey(texts[0])


def _partition_path(kind: str, config: KeyGeneratorSpec) -> PartitionPath:
    from lakebed.expressions.partition_paths import PartitionPath

    if kind in (NON_PARTITION, GLOBAL_DELETE):
        return PartitionPath((), config.hive_style)
    fields, types = config.partition_fields, config.partition_types
    if kind == CUSTOM:
        fields, types = _custom_fields(fields, types)
    stamps = {TIMESTAMP: (True,), CUSTOM: tuple([t.upper() == TIMESTAMP for t in types])}.get(
        kind, (False,) * len(fields)
    )
    parts = [_part(config, name, is_stamp) for name, is_stamp in zip(fields, stamps, strict=True)]
    return PartitionPath(tuple(parts), config.hive_style)


def _custom_fields(fields: tuple[str, ...], types: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and types of a CUSTOM generator's fields, from `f:TYPE` or from two lists."""
    if not types:
        split = [name.rsplit(":", 1) for name in fields]
        fields, types = tuple(pair[0] for pair in split), tuple(pair[-1] if len(pair) > 1 else "" for pair in split)
    wrong = [name for name, kind in zip(fields, types, strict=False) if kind.upper() not in (SIMPLE, TIMESTAMP)]
    if wrong or len(fields) != len(types):
        raise InvalidOption(
            f"partition fields of a custom key generator without a type: {', '.join(wrong or fields)}",
            hint="Write each as name:SIMPLE or name:TIMESTAMP",
        )
    return fields, types


def _part(config: KeyGeneratorSpec, name: str, is_stamp: bool) -> PathPart:
    from lakebed.expressions.partition_paths import ValuePart
    from lakebed.expressions.timestamp import TimestampPart, TimestampSettings

    if is_stamp:
        settings = TimestampSettings.of(config.timestamp, config.timezone)
        return TimestampPart(name, settings, config.hive_style, config.url_encode, config.consistent_logical_timestamp)
    slash_dates = config.slash_dates and len(config.partition_fields) == 1
    return ValuePart(_text(config, name), config.hive_style, config.url_encode, slash_dates, config.dropped)


def _key_table(values: Any, key_fields: tuple[str, ...], schema: pa.Schema | None) -> pa.Table:
    if isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    if not isinstance(values, pa.Table):
        if len(key_fields) != 1:
            raise InvalidOption(
                f"plain key values given, but the key is made of {', '.join(key_fields) or 'generated values'}",
                hint="Give a table with one column for each key field",
            )
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        values = pa.table({key_fields[0]: column})
    missing = [name for name in key_fields if name not in values.column_names]
    if missing and not all(name.partition(".")[0] in values.column_names for name in missing):
        raise InvalidOption(
            f"key columns missing: {', '.join(missing)}",
            hint=f"{near_or_nothing(missing[0], values.column_names)}The key is made of {', '.join(key_fields)}",
        )
    return values if schema is None else _cast(values, schema, key_fields)


def _cast(table: pa.Table, schema: pa.Schema, key_fields: tuple[str, ...]) -> pa.Table:
    for name in key_fields:
        at = table.schema.get_field_index(name)
        if at < 0:
            continue
        kind = Column(name).type_in(schema)
        try:
            table = table.set_column(at, name, exact_cast(table.column(at), kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidOption(
                f"values of type {table.schema.field(at).type} do not fit the key column `{name}` of type {kind}",
                hint=str(error),
            ) from error
    return table


def _readable(value: pa.Scalar) -> str:
    """A value as text: a time without its zeros after the seconds, and with its offset where it has one."""
    if not value.is_valid or not pa.types.is_timestamp(value.type):
        return str(value) if value.is_valid else NULL_VALUE
    local = re.sub(r"\.0+$", "", str(value.cast(pa.timestamp(value.type.unit)).cast(pa.string())))
    return f"{local}Z" if value.type.tz else local


def exact_cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The values cast to another type. Raises `pa.ArrowInvalid` for a value that would change: Arrow itself cuts times
    to dates, takes times without a zone for ones in UTC, counts numbers from 1970, and rounds for decimals.

    >>> exact_cast(pa.chunked_array([[2.0]]), pa.int64()).to_pylist()
    [2]
    """
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    source_type = values.type
    if source_type == kind or pa.types.is_null(source_type):
        return values.cast(kind)
    if not is_text(source_type) and not is_text(kind):
        if any(is_sort(source_type) != is_sort(kind) for is_sort in (pa.types.is_temporal, pa.types.is_boolean)):
            raise pa.ArrowInvalid(f"{source_type} is no {kind}")
        if (
            pa.types.is_timestamp(source_type)
            and pa.types.is_timestamp(kind)
            and (source_type.tz is None) != (kind.tz is None)
        ):
            raise pa.ArrowInvalid("one of them has a time zone")
    if pa.types.is_decimal(kind) and pa.types.is_integer(source_type):
        # Arrow asks for room for any integer: give it, then narrow
        return values.cast(pa.decimal128(38, kind.scale)).cast(kind)
    if pa.types.is_decimal(source_type) and pa.types.is_integer(kind):
        values = values.cast(pa.decimal128(38, source_type.scale))
    done = values.cast(kind)
    if not is_text(source_type) and not is_text(kind) and not pa.types.is_floating(kind):
        differ = pc.fill_null(pc.not_equal(done.cast(values.type), values), False)
        if pc.any(differ).as_py():
            raise pa.ArrowInvalid(f"{values.filter(differ)[0]} would become {done.filter(differ)[0]}")
    return done
