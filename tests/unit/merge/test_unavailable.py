"""Markers of values that a database left out: their forms, inside structs, and over the changes of one batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.merge.unavailable import may_mark_inside, unavailable_values

MARKER = "__debezium_unavailable_value"
LETTERS = list(MARKER.encode())
TEXTS = pa.map_(pa.string(), pa.string())
# a type, values, and which of them are the marker
FORMS: list[tuple[pa.DataType, list[Any], list[bool]]] = [
    (pa.string(), [MARKER, None, MARKER + "x", ""], [True, False, False, False]),
    (pa.binary(), [MARKER.encode(), None, b"x"], [True, False, False]),
    (pa.list_(pa.string()), [[MARKER], [MARKER, MARKER], [], None, ["x"], [None]], [True] + [False] * 5),
    (pa.list_(pa.binary()), [[MARKER.encode()], [b"x"]], [True, False]),
    (pa.list_(pa.int64()), [LETTERS, LETTERS[:-1], [*LETTERS[:-1], None], None, []], [True] + [False] * 4),
    (pa.list_(pa.int32()), [[*LETTERS, 1], LETTERS], [False, True]),
    (TEXTS, [[(MARKER, MARKER)], [("x", MARKER)], [(MARKER, "x")], [], None], [True] + [False] * 4),
]


def test_the_marker_has_a_form_in_each_type_that_may_be_left_out() -> None:
    for kind, values, expected in FORMS:
        for offset in range(2):
            found = unavailable_values(pa.array(values, kind).slice(offset), MARKER)
            assert (None if found is None else found.tolist()) == expected[offset:], kind
    assert unavailable_values(pa.array([1]), MARKER) is None
    assert unavailable_values(pa.array([[1.5]]), MARKER) is None
    assert [may_mark_inside(pa.struct([("x", kind)])) for kind in (pa.int64(), pa.string())] == [False, True]


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("_event_lsn", pa.int64()),
        ("_change_operation_type", pa.string()),
        ("text", pa.string()),
        ("list", pa.list_(pa.int64())),
        ("inner", pa.struct([("a", pa.string()), ("b", pa.struct([("c", pa.binary()), ("n", pa.int64())]))])),
    ]
)


def change(lsn: int, text: str | None, numbers: Any, a: str, c: bytes, n: int) -> dict[str, Any]:
    inner = {"a": a, "b": {"c": c, "n": n}}
    return {"id": 1, "_event_lsn": lsn, "_change_operation_type": "u", "text": text, "list": numbers, "inner": inner}


@pytest.mark.parametrize("version", [9, 8, 6])
def test_changes_of_one_key_keep_earlier_values_under_the_marker_in_one_batch_and_over_several(version: int) -> None:
    first = change(1, "one", [1, 2], "a", b"c", 1)
    later = [
        change(2, MARKER, LETTERS, MARKER, b"d", 2),
        change(3, "two", LETTERS, MARKER, MARKER.encode(), 3),
        change(4, MARKER, LETTERS, "e", MARKER.encode(), 4),
        change(5, MARKER, [5], MARKER, MARKER.encode(), 5),
        change(6, MARKER, LETTERS, MARKER, MARKER.encode(), 6),
        change(7, MARKER, LETTERS, MARKER, MARKER.encode(), 7),
    ]
    expected = change(7, "two", [5], "e", b"d", 7)
    for kind in ("cow", "mor"):
        for cuts in ([7], [1, 7], [1, 3, 7], [2, 3, 4, 7], [*range(1, 8)]):
            words: dict[str, Any] = {"key": "id", "ordering": "_event_lsn", "merge": "PostgresDebeziumAvroPayload"}
            uri = "memory://merge/unavailable"
            table = lakebed.create(uri, SCHEMA, type=kind, index="simple", table_version=version, **words)
            for start, end in zip([0, *cuts], cuts, strict=False):
                table.upsert(pa.Table.from_pylist([first, *later][start:end], SCHEMA))
            assert table.scan(SCHEMA.names).to_arrow().to_pylist() == [expected], (kind, cuts)
            if kind == "mor":
                table.maintenance.compact()
                assert table.scan(SCHEMA.names).to_arrow().to_pylist() == [expected], ("compacted", cuts)
            lakebed.drop(uri)


def test_binary_log_files_compare_by_their_numbers() -> None:
    files = ["mysql-bin.999999", "mysql-bin.1000000", "mysql-bin.1000001"]
    columns: dict[str, Any] = {"key": "id", "merge": "MySqlDebeziumAvroPayload"}
    for version, kind in ((9, "cow"), (9, "mor"), (8, "cow"), (6, "mor")):
        for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
            rows = [
                {
                    "id": 1,
                    "_change_operation_type": "u",
                    "_event_bin_file": files[at],
                    "_event_pos": 9 - at,
                    "_event_seq": f"{files[at].partition('.')[2]}.{9 - at}",
                }
                for at in order
            ]
            ordering = {} if version == 9 else {"ordering": "_event_seq"}
            uri = "memory://merge/files"
            schema = pa.Table.from_pylist(rows).schema
            table = lakebed.create(uri, schema, type=kind, index="simple", table_version=version, **columns, **ordering)
            for batch in ([rows], [rows[:1], rows[1:]], [[row] for row in rows]):
                for part in batch:
                    table.upsert(pa.Table.from_pylist(part))
                assert table.scan(["_event_bin_file"]).to_arrow()["_event_bin_file"].to_pylist() == [files[2]], order
            lakebed.drop(uri)
