"""Which of two rows with one key wins: the table's merge mode as vectorised decisions over Arrow columns.

Ordering values: taken out of rows, made comparable, compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.merge.key_fields import KeyFields
from lakebed.merge.mergers import Merger, merger_of
from lakebed.model import DELETE_OPERATIONS, IS_DELETED_COLUMN, OPERATION_COLUMN, RECORD_KEY
from lakebed.properties.table_config import PayloadRule, TableConfig
from lakebed.schema.java_text import to_java_text
from lakebed.schema.plain_arrow import as_numpy, one_array


def field_values(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """The values of a column, or of a field inside structs by its dotted path; null where a struct on the path is
    null."""
    if name in rows.schema.names:
        return one_array(rows.column(name))
    first, *path = name.split(".")
    return pc.struct_field(one_array(rows.column(first)), path)


def comparable(values: pa.Array) -> pa.Array:
    """The values in a form that compares as in Java: booleans as numbers, floats as integers in which NaN is
    greatest."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    as_double = as_numpy(pc.fill_null(values.cast(pa.float64()), 0.0))
    bits = np.where(np.isnan(as_double), np.nan, as_double).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(ordered, mask=as_numpy(pc.is_null(values)))


def nulls_first(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns that sort as the given columns do, with nulls before all values."""
    parts = [[c.is_valid().cast(pa.int8()), c] if c.null_count else [c] for c in columns]
    return [part for column_parts in parts for part in column_parts]


def file_and_position(values: pa.Array) -> list[pa.Array]:
    """Texts `<file number>.<position>`, of a MySQL binary log, as two columns of numbers.

    >>> [part.to_pylist() for part in file_and_position(pa.array(["000009.120", None]))]
    [[9, None], [120, None]]
    """
    texts = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    parts = pc.extract_regex(texts.cast(pa.string()), r"^(?P<file>[0-9]+)\.(?P<position>[0-9]+)$")
    bad = pc.and_(pc.is_valid(texts), pc.is_null(parts))
    if pc.any(bad).as_py():
        value = texts.filter(bad)[0].as_py()
        raise InvalidRecord(
            f"the ordering value {value!r} is not the number of a binary log file, a dot and a position",
            hint="MySqlDebeziumAvroPayload orders by such texts, as in 000003.1547",
            context={"value": value},
        )
    return [pc.struct_field(parts, name).cast(pa.int64()) for name in ("file", "position")]


def file_by_number(files: pa.Array) -> list[pa.Array]:
    """Names of MySQL's binary log files as columns that compare by their numbers, then as texts.

    >>> [part.to_pylist() for part in file_by_number(pa.array(["binlog.999999", "binlog.1000000"]))]
    [[999999, 1000000], ['binlog.999999', 'binlog.1000000']]
    """
    texts = files.dictionary_decode() if pa.types.is_dictionary(files.type) else files
    if not pa.types.is_string(texts.type):
        return [texts]
    number = pc.struct_field(pc.extract_regex(texts, r"(?P<number>[0-9]{1,18})$"), "number")
    return [number.cast(pa.int64()), texts]


PartialMode = Literal["", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"]
# Hudi's column of the binary log file of a change.
BIN_FILE = "_event_bin_file"
_DELETED = pa.array(DELETE_OPERATIONS, pa.string())


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The table's merge mode, reduced to the settings that decide between two rows.

    `ordering` names the ordering fields (dotted inside structs) under event-time ordering and is empty under
    commit-time ordering, where the later row always wins; with `file_positions` its values are texts
    `<file>.<position>`. `delete_field` and `delete_marker` mark a row as a delete in addition to `_hoodie_is_deleted`
    (`any_case`: whatever the case of the marker), `deletes_win` that deletes win whatever their ordering values,
    `delete_blocks_win` that those of delete blocks do. With `late_meta` the newer of two rows gives the meta columns,
    whichever wins.

    `partial` selects the fields of the winner that take the other row's value: IGNORE_DEFAULTS those that are null,
    FILL_UNAVAILABLE those that are `unavailable` (`merge.unavailable`); empty: none. With `late_fills` only a newer row
    that wins takes them.
    `batch_ordering` are the fields by which one of several rows of a batch is picked unchanged, where the rules
    themselves do not decide that. With a `merger` a function of the user's merges two rows; it leaves the `fixed`
    fields, of key and partition path, as one of the rows has them. `key_fields` are those of a composite key: rows of
    one key text that differ in them are refused.
    """

    ordering: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    partial: PartialMode = ""
    unavailable: str = ""
    any_case: bool = False
    deletes_win: bool = False
    delete_blocks_win: bool = False
    late_meta: bool = False
    late_fills: bool = False
    file_positions: bool = False
    batch_ordering: tuple[str, ...] | None = None
    merger: Merger | None = None
    fixed: tuple[str, ...] = ()
    key_fields: KeyFields | None = None

    @classmethod
    def of_table(cls, config: TableConfig) -> MergeRules:
        """The rules that a table's properties name. Raises `UnsupportedFeature` for a merger that is not installed
        here, and for a Java class of the user's own."""
        deletes = (config.delete_field or None, config.delete_marker or None)
        if config.merge_mode == "custom":
            rules = cls._custom(config, *deletes)
        else:
            rules = cls(config.ordering_fields if config.merge_mode == "event_time" else (), *deletes)
            if config.partial_update_mode:
                rules = rules._partial(config.partial_update_mode, config.unavailable_value)
        return replace(rules, key_fields=KeyFields.of(config)) if len(config.key_fields) > 1 else rules

    @classmethod
    def _custom(cls, config: TableConfig, field: str | None, marker: str | None) -> MergeRules:
        payload = config.payload_rule
        if payload is None:
            fixed = tuple(dict.fromkeys((*config.key_fields, *config.partition_fields)))
            return cls((), field, marker, merger=merger_of(config), fixed=fixed)
        properties = payload.merge_properties
        rules = cls(
            _payload_ordering(payload, config),
            properties.get("hoodie.payload.delete.field", field),
            properties.get("hoodie.payload.delete.marker", marker),
            any_case="hoodie.payload.delete.field" in properties,
            deletes_win=payload.deletes_win,
            delete_blocks_win=True,
            late_meta=payload.late_meta,
            late_fills=payload.late_fills,
            file_positions=payload.file_positions,
            batch_ordering=_batch_ordering(payload, config),
        )
        return rules._partial(payload.partial_update_mode, config.unavailable_value)

    def _partial(self, mode: str, unavailable: str) -> MergeRules:
        match mode.upper():
            case "":
                return self
            case "IGNORE_DEFAULTS":
                return replace(self, partial="IGNORE_DEFAULTS")
            case "FILL_UNAVAILABLE":
                return replace(self, partial="FILL_UNAVAILABLE", unavailable=unavailable)
            case _:
                raise UnsupportedFeature(
                    f"the table merges rows in the partial update mode {mode}, which lakebed does not know",
                    hint="write to it with the engine that made it",
                    context={"feature": "partial updates"},
                )

    @property
    def picks_winners(self) -> bool:
        """Whether one row of a key is always retained unchanged, so that keys and ordering values decide the winner;
        otherwise rows of a key are merged two at a time (`merge.pairs`)."""
        return not self.partial and self.merger is None

    @property
    def in_batch(self) -> MergeRules:
        """The rules among several rows of one batch."""
        if self.batch_ordering is None:
            return self
        return replace(self, ordering=self.batch_ordering, partial="", batch_ordering=None)

    @property
    def of_deletes(self) -> MergeRules:
        """The rules among rows that name deleted keys: they have no ordering values."""
        return MergeRules(key_fields=self.key_fields)

    @property
    def ordering_columns(self) -> list[str]:
        """The columns that hold the ordering fields."""
        return list(dict.fromkeys([name.partition(".")[0] for name in self.ordering]))

    @property
    def compares_columns(self) -> bool:
        """Whether ordering values compare as plain columns do."""
        return not self.file_positions and not any("." in name or name == BIN_FILE for name in self.ordering)

    def is_delete(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | None:
        """Flags of the rows that are deletes (without nulls); None if the rows have no column that marks deletes."""
        flags: list[pa.Array] = []
        names = rows.schema.names
        if IS_DELETED_COLUMN in names:
            flags.append(pc.fill_null(one_array(rows.column(IS_DELETED_COLUMN)).cast(pa.bool_()), False))
        if OPERATION_COLUMN in names:
            flags.append(pc.is_in(one_array(rows.column(OPERATION_COLUMN)).cast(pa.string()), _DELETED))
        if self.delete_field and self.delete_field in names:
            flags.append(self._is_marked(one_array(rows.column(self.delete_field))))
        if not flags:
            return None
        first, *other_flags = flags
        for flag in other_flags:
            first = pc.or_(first, flag)
        return first

    def _is_marked(self, values: pa.Array) -> pa.Array:
        text, marker = to_java_text(values), self.delete_marker or ""
        if self.any_case:
            text, marker = pc.utf8_lower(text), marker.lower()
        return pc.fill_null(pc.equal(text, marker), False)

    def check_ordering(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Raise `InvalidRecord` for a null ordering value: real Hudi could not read such a row back."""
        for name, column in zip(self.ordering, self.ordering_of(rows), strict=True):
            if column.null_count:
                at = pc.indices_nonzero(pc.is_null(column))[0].as_py()
                key = rows.column(RECORD_KEY)[at].as_py()
                raise InvalidRecord(
                    f"ordering field {name!r} is null in {column.null_count} row(s), first at record key {key!r}",
                    hint="fill the ordering field, or create the table with merge='commit_time'; with"
                    " lakebed.write.null.ordering=lowest a null loses against every value (not in a delete)",
                    context={"column": name, "record_key": key, "rows": column.null_count},
                )

    def incoming_wins(self, incoming: pa.Table | pa.RecordBatch, stored: pa.Table | pa.RecordBatch) -> pa.Array | None:
        """Flags of the rows where the incoming row replaces the stored one, which it does for equal values. None if it
        always does."""
        if not self.ordering:
            return None
        return self.newer_wins(self.ordering_of(stored), self.ordering_of(incoming))

    def ordering_of(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        """The values of the ordering fields in the rows, one array for each field."""
        return [field_values(rows, name) for name in self.ordering]

    def newer_wins(self, older: Sequence[pa.Array], newer: Sequence[pa.Array]) -> pa.Array:
        """Flags of the rows where the newer ordering values are not smaller than the older ones, compared column by
        column; a null is smaller than every value."""
        result: pa.Array | None = None
        for new, old in zip(reversed(self._parts(newer)), reversed(self._parts(older)), strict=True):
            new, old = comparable(new), comparable(old)
            greater = pc.fill_null(pc.greater(new, old), pc.and_(pc.is_valid(new), pc.is_null(old)))
            equal = pc.fill_null(pc.equal(new, old), pc.and_(pc.is_null(new), pc.is_null(old)))
            result = pc.or_(greater, equal if result is None else pc.and_(equal, result))
        assert result is not None
        return result

    def comparable(self, ordering: Sequence[pa.Array]) -> list[pa.Array]:
        """The ordering values as columns that sort as they compare, from left to right, nulls first."""
        return [comparable(values) for values in self._parts(ordering)]

    def _parts(self, ordering: Sequence[pa.Array]) -> Sequence[pa.Array]:
        if self.file_positions:
            return [part for values in ordering for part in file_and_position(values)]
        if BIN_FILE not in self.ordering:
            return ordering
        named = zip(self.ordering, ordering, strict=True)
        return [part for name, values in named for part in (file_by_number(values) if name == BIN_FILE else [values])]


def _batch_ordering(payload: PayloadRule, config: TableConfig) -> tuple[str, ...] | None:
    return config.ordering_fields if payload.mode == "commit_time" else None


def _payload_ordering(payload: PayloadRule, config: TableConfig) -> tuple[str, ...]:
    """The fields that a payload class compares below version 9: some classes have fixed ordering columns."""
    if payload.mode == "commit_time":
        return ()
    return payload.lakebed_ordering or config.ordering_fields
