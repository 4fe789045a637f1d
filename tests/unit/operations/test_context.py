"""What every write checks of its rows before it begins: names, roles and types of columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.operations.context import (
    check_key_types,
    check_ordering_types,
    incoming_rows,
    incoming_schema,
    keyed_by_meta,
    refuse_reserved,
    require_columns,
)
from support.tables import context_of, new_table
from support.write_tables import SCHEMA


def changed(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


def test_a_column_of_a_role_must_be_in_the_data() -> None:
    context = context_of(new_table())
    require_columns(context, SCHEMA)
    for name, role in (("id", "record key"), ("city", "partition"), ("ts", "ordering")):
        without = SCHEMA.remove(SCHEMA.get_field_index(name))
        with pytest.raises(SchemaConflict, match=f"the {role} column '{name}'") as refused:
            require_columns(context, without)
        assert refused.value.context == {"column": name, "role": role, "columns": without.names}, name
    require_columns(context, SCHEMA.remove(SCHEMA.get_field_index("ts")), ordering=False)


def test_an_ordering_column_must_have_an_order() -> None:
    context = context_of(new_table())
    for kind in (pa.int32(), pa.string(), pa.date32(), pa.timestamp("us")):
        require_columns(context, changed("ts", kind))
    for kind in (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())):
        with pytest.raises(SchemaConflict, match="which has no order"):
            require_columns(context, changed("ts", kind))


def test_a_key_column_keeps_its_type_but_for_the_width_of_integers_and_the_unit_of_times() -> None:
    context = context_of(new_table())
    us, ms = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")
    cases = [
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.int64(), True),
        (us, ms, True),
        (ms, us, True),
        (pa.timestamp("us"), us, False),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.string(), False),
        (pa.string(), pa.binary(), False),
        (pa.float32(), pa.float64(), False),
    ]
    for stored, incoming, allowed in cases:
        for name, role in (("id", "record key"), ("city", "partition")):
            given = context, changed(name, stored), changed(name, incoming)
            if allowed:
                check_key_types(*given)
                continue
            with pytest.raises(SchemaConflict) as refused:
                check_key_types(*given)
            told = refused.value.context
            assert (told["role"], told["table"], told["data"]) == (role, str(stored), str(incoming)), (stored, incoming)


def test_an_ordering_column_widens_within_its_kind_alone() -> None:
    context = context_of(new_table())
    cases = [
        (pa.int32(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(9, 2), pa.decimal128(18, 2), True),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.string(), False),
        (pa.date32(), pa.timestamp("us"), False),
    ]
    for stored, merged, allowed in cases:
        given = context, changed("ts", stored), changed("ts", merged)
        if allowed:
            check_ordering_types(*given)
            continue
        with pytest.raises(SchemaConflict, match="the ordering column 'ts'") as refused:
            check_ordering_types(*given)
        assert refused.value.context["data"] == str(merged), (stored, merged)


def test_reserved_names_are_refused_in_any_case_and_hudis_own_columns_are_left_out() -> None:
    refuse_reserved(["id", "_lake", "_hoodie_record_key", "hoodie"])
    for name in ("_lakebed_group", "_LAKEBED_group", "_Hoodie_Record_Key"):
        with pytest.raises(SchemaConflict, match="is reserved") as refused:
            refuse_reserved(["id", name])
        assert refused.value.context == {"column": name}
    assert incoming_schema(SCHEMA.append(pa.field("_hoodie_record_key", pa.string()))).names == SCHEMA.names


def test_columns_get_the_names_and_types_of_the_table() -> None:
    context = context_of(new_table())
    given = pa.table({"ID": [1, 2], "City": ["oslo", None], "v": pa.nulls(2), "TS": [3, 4], "More": [5, 6]})
    found = context.engine.collect(incoming_rows(context, given))
    assert found.schema.field("v").type == pa.string()
    assert sorted(found.column_names) == ["More", "city", "id", "ts", "v"]
    assert found.select(["id", "city", "v", "ts", "More"]).to_pylist() == [
        {"id": 1, "city": "oslo", "v": None, "ts": 3, "More": 5},
        {"id": 2, "city": None, "v": None, "ts": 4, "More": 6},
    ]


def test_a_write_by_key_needs_stored_keys() -> None:
    keyed_by_meta(context_of(new_table()), "upsert")
    without_meta = {"properties": {"hoodie.populate.meta.fields": "false"}}
    cases: list[tuple[dict[str, Any], str]] = [
        (without_meta, "keeps no meta fields"),
        ({"key": None}, "generated record keys"),
    ]
    for more, message in cases:
        with pytest.raises(InvalidOption, match=message) as refused:
            keyed_by_meta(context_of(new_table(**more)), "delete")
        assert refused.value.context == {"operation": "delete"}, message
