"""JSON messages as rows: one row a message whatever the messages hold, and each bad one by its number."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakebed.ingestion import messages as message_parts
from lakebed.ingestion.json_messages import decode_json, without_null_types

ID = {"id": pa.int64()}


def decoded(*messages: bytes, types: dict[str, pa.DataType] | None = None) -> tuple[list[Any], list[int], list[int]]:
    """Rows, the numbers of their messages, and the numbers of bad messages."""
    found = decode_json(pa.array(list(messages), pa.binary()), ID if types is None else types)
    return found.rows.to_pylist(), found.numbers.tolist(), [message.number for message in found.bad]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"null", "no JSON object"),
        (b"", "no JSON object"),
        (b"  ", "no JSON object"),
        (b"7", "no JSON object"),
        (b'[{"id": 1}]', "no JSON object"),
        (b'{"id": 2}{"id": 3}', "several JSON objects"),
        (b'{"id": 2}\n{"id": 3}', "several JSON objects"),
        (b'{"id": 4, "id": 5}', "twice"),
        (b'{"id": "five"}', "no int64"),
        (b'{"id": 1.5}', "no int64"),
        (b'{"id": 9223372036854775808}', "no int64"),
        (b'{"id": [1]}', "no int64"),
        (b'{"id": 1, "text": "\xff"}', "UTF8"),
        (b'{"id": 1} x', "Invalid value"),
        (b'{"id": ', "Invalid value"),
        (b"\x00\x01", "no JSON object"),
    ],
)
def test_a_hostile_message_is_bad_and_its_neighbours_are_rows(message: bytes, reason: str) -> None:
    found = decode_json(pa.array([b'{"id":1}', message, b'{"id":2}'], pa.binary()), ID)
    assert found.rows.to_pylist() == [{"id": 1}, {"id": 2}]
    assert found.numbers.tolist() == [0, 2]
    assert [(bad.number, bad.reason) for bad in found.bad] == [(1, "JSON_ROW_DESERIALIZATION_FAILURE")]
    assert reason in found.bad[0].error


def test_a_first_message_that_is_null_and_one_alone_are_bad() -> None:
    assert decoded(b"null", b'{"id":1}') == ([{"id": 1}], [1], [0])
    assert decoded(b"null") == ([], [], [0])


def test_an_object_over_two_messages_and_two_in_one_do_not_make_up_for_each_other() -> None:
    # three objects in three messages as one text
    messages = (b'{"id":1,"a":', b'{"id":2}}', b'{"id":3}{"id":4}', b'{"id":5}')
    assert decoded(*messages) == ([{"id": 5}], [3], [0, 1, 2])


def test_objects_over_several_lines_after_blanks_and_without_fields_are_rows() -> None:
    rows, numbers, bad = decoded(b'\n {\n "id": 1\n}\n', b"{}", b'\xef\xbb\xbf{"id":3}', b"{ }")
    assert (rows, numbers, bad) == ([{"id": 1}, {"id": None}, {"id": 3}, {"id": None}], [0, 1, 2, 3], [])


def test_whole_numbers_with_a_fraction_of_zero_and_texts_of_numbers_are_numbers() -> None:
    assert decoded(b'{"id":1.0}', b'{"id":2e3}') == ([{"id": 1}, {"id": 2000}], [0, 1], [])
    assert decoded(b'{"id":1}', b'{"id":2.0}', b'{"id":"3"}') == ([{"id": 1}, {"id": 2}, {"id": 3}], [0, 1, 2], [])


def test_large_whole_numbers_written_with_a_fraction_are_exact_or_bad() -> None:
    assert decoded(b'{"id":9007199254740993.0}', b'{"id":1.0}')[0] == [{"id": 9007199254740993}, {"id": 1}]
    assert decoded(b'{"id":9007199254740993.5}')[2] == [0]


def test_values_have_the_types_of_columns() -> None:
    types = {"day": pa.date32(), "fare": pa.decimal128(10, 2), "at": pa.timestamp("us", "UTC"), "raw": pa.binary()}
    (row,), _, bad = decoded(b'{"day":"2024-01-31","fare":12.10,"at":"2024-01-31T00:00:00Z","raw":"AAE="}', types=types)
    assert bad == []
    assert (row["day"], row["fare"], row["raw"]) == (date(2024, 1, 31), Decimal("12.10"), b"\x00\x01")
    assert row["at"].isoformat() == "2024-01-31T00:00:00+00:00"
    del types["raw"]  # all columns by Arrow
    assert decoded(b'{"day":"2024-01-31","fare":12.10}', types=types)[0][0]["day"] == date(2024, 1, 31)


def test_each_message_of_a_table_with_maps_is_one_row() -> None:
    types = {"id": pa.int64(), "tags": pa.map_(pa.string(), pa.int64())}
    messages = (b'{"id":1,"tags":{"a":1}}', b'{"id":2}{"id":3}', b'{"id":4,"a":', b'{"id":5}}')
    rows, numbers, bad = decoded(*messages, types=types)
    assert ([row["id"] for row in rows], rows[0]["tags"], numbers, bad) == ([1], [("a", 1)], [0], [1, 2, 3])


def test_a_field_in_another_case_is_the_column() -> None:
    assert decoded(b'{"ID":"7"}', b'{"Id":8}') == ([{"id": 7}, {"id": 8}], [0, 1], [])


def test_new_fields_are_columns_and_those_without_any_value_have_no_type_and_can_be_left_out() -> None:
    messages = [b'{"id":1,"a":null,"s":{"x":null},"l":[]}', b'{"id":2,"s":{"x":null,"y":1},"b":[{"z":null}]}']
    found = decode_json(pa.array(messages, pa.binary()), ID).rows
    assert (found.schema.field("a").type, set(found.column_names)) == (pa.null(), {"id", "a", "s", "l", "b"})
    assert without_null_types(found).to_pylist() == [{"id": 1, "s": {"y": None}}, {"id": 2, "s": {"y": 1}}]


def test_an_empty_object_and_an_empty_list_in_one_field_are_both_no_value() -> None:
    assert decoded(b'{"id":1,"n":{}}', b'{"id":2,"n":[]}') == ([{"id": 1}, {"id": 2}], [0, 1], [])


def test_a_new_field_with_texts_and_numbers_is_text_whatever_bad_messages_split_the_rest() -> None:
    rows, numbers, bad = decoded(b'{"n":1}', b"bad", b'{"n":"a"}', b'{"n":2.5}', types={})
    assert (rows, numbers, bad) == ([{"n": "1"}, {"n": "a"}, {"n": "2.5"}], [0, 2, 3], [1])


def test_new_fields_inside_a_column_of_the_table_have_a_type_for_the_values_of_all_messages() -> None:
    types = {"id": pa.int64(), "s": pa.struct([("a", pa.int64())])}
    messages = [b'{"id":1,"s":{"a":1,"new":5}}', b'{"id":2,"s":{"a":2,"new":"x"}}', b'{"id":3,"s":{"a":"?"}}']
    expected = [{"id": 1, "s": {"a": 1, "new": "5"}}, {"id": 2, "s": {"a": 2, "new": "x"}}]
    assert decoded(*messages, types=types) == (expected, [0, 1], [2])
    inside = {"l": pa.list_(pa.struct([("a", pa.int64())]))}
    messages = [b'{"l":[{"a":1,"new":true}]}', b'{"l":[{"a":2,"new":"x"}]}']
    expected = [{"l": [{"a": 1, "new": "true"}]}, {"l": [{"a": 2, "new": "x"}]}]
    assert decoded(*messages, types=inside) == (expected, [0, 1], [])


def test_no_messages_are_no_rows() -> None:
    assert decoded() == ([], [], [])


def test_rows_are_equal_on_both_sides_of_the_bound_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b'{"id":%d,"text":"%s"}' % (number, b"x" * number) for number in range(40)]
    whole = decoded(*messages)
    monkeypatch.setattr("lakebed.ingestion.json_messages.PART_BYTES", 64)
    assert decoded(*messages) == whole
    assert whole[1] == list(range(40))


def test_parts_end_at_messages_and_a_long_message_is_one() -> None:
    values = pa.array([b"ab", b"c", b"x" * 50, b"", b"d"], pa.binary())
    assert message_parts.parts_of(values, 10) == [(0, 2), (2, 4), (4, 5)] or message_parts.parts_of(values, 10) == [
        (0, 2),
        (2, 3),
        (3, 5),
    ]
    assert message_parts.parts_of(values.slice(1, 2), 10) == [(0, 1), (1, 2)]


def test_types_of_new_fields_are_those_that_keep_the_values_whatever_parts_messages_are_decoded_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = 2**64 - 1
    columns: list[tuple[list[str], list[Any], list[int]]] = [
        (["1", str(large)], [1, large], []),
        ([str(large), "0.5"], [large], [1]),
        (["0.5", str(2**53 + 1)], [2**53 + 1], [0]),
        (['"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00"'], ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], []),
        (["[null,0.5]", f"[{large}]"], [[large]], [0]),
        (["[null,null,7]", "[null,8]"], [[None, None, 7], [None, 8]], []),
    ]
    for values, expected, bad in columns:
        for part_bytes in (1, 64 << 20):
            monkeypatch.setattr("lakebed.ingestion.json_messages.PART_BYTES", part_bytes)
            rows, _, refused = decoded(*(f'{{"v":{value}}}'.encode() for value in values), types={})
            assert refused == bad or (part_bytes > 1 and len(refused) == len(bad)), values
            if refused == bad:
                assert [row["v"] for row in rows] == expected, values
