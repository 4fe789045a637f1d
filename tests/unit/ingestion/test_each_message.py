"""Each message of a round by itself: one that is no row, wherever it is, costs no other message."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import lakebed
from support.given_topic import Message, Topic, values


def ingested(*rounds: list[Message], transform: str | None = None, **settings: Any) -> tuple[list[Any], dict[str, str]]:
    """The rows of the table, and the errors of bad rows by their positions."""
    uri = "memory://each/message"
    job = {
        "source": Topic(*rounds, **settings),
        "target": {"uri": uri, "create": {"key": "id", "index": "simple"}},
        "errors": {"table": f"{uri}-errors"},
    }
    lakebed.ingest(job if transform is None else {**job, "transform": transform}, once=True)
    rows, errors = [], {}
    if lakebed.list_tables(uri, depth=0):
        rows = lakebed.open(uri).scan().to_arrow().sort_by("id").to_pylist()
        lakebed.drop(uri)
    if lakebed.list_tables(f"{uri}-errors", depth=0):
        found = lakebed.open(f"{uri}-errors").scan(["position", "error"]).to_arrow().to_pylist()
        errors = {row["position"]: row["error"] for row in found}
        lakebed.drop(f"{uri}-errors")
    return rows, errors


def change(number: int, **after: Any) -> bytes:
    source = {"connector": "postgresql", "name": "pg", "schema": "public", "ts_ms": 1, "lsn": number}
    return json.dumps(
        {"before": None, "after": {"id": number, **after}, "source": source, "op": "c", "ts_ms": 2}
    ).encode()


def wrapped(message: bytes) -> bytes:
    return json.dumps({"schema": {"type": "struct"}, "payload": json.loads(message)}).encode()


HOSTILE_ENVELOPES = [
    b'{"id": 1}',
    b'{"payload": {"op": 1}}',
    b'{"payload": 5}',
    b'{"payload": {}}',
    b'{"schema": {"type": "struct"}, "payload": null}',
    b'{"schema": {"type": "struct", "payload": {}}',
    b'{"schema": [], "payload": []}',
    b'{"op": "c", "after": [1]}',
    b'{"op": "c", "after": "{}", "before": "{}"}',
    b'{"payload": {"op": "d", "before": [{"id": 1}]}}',
    b'{"op": "c", "source": {"snapshot": {"a": 1}, "txId": []}, "transaction": [1]}',
    b"{}",
    b"null",
    b"\xff",
]


def test_a_malformed_message_anywhere_costs_no_envelope_with_or_without_its_schema() -> None:
    for hostile, at in itertools.product(HOSTILE_ENVELOPES, (0, 2, 4)):
        good = [change(1), wrapped(change(2)), change(3), wrapped(change(4))]
        good.insert(at, hostile)
        rows, errors = ingested(values(*good), format="debezium-json", envelope="row")
        assert ([row["id"] for row in rows], list(errors)) == ([1, 2, 3, 4], [f"t/0/{at}"]), (hostile, at, errors)


HOSTILE_ROWS = {
    b'{"id":9,"a-b":2}': "the column name 'a-b' is not possible",
    b'{"id":9,"":2}': "a column has no name",
    b'{"id":9,"1st":[]}': None,
    b'{"id":9,"s":{"x y":2}}': "the column name 'x y' is not possible",
    b'{"id":9,"s":{"x y":null}}': None,
    b'{"id":9,"l":[{"x":1},{"x.y":2}]}': "the column name 'x.y' is not possible",
    b'{"id":9,"_hoodie_Record_key":"k"}': "is reserved",
    b'{"id":9,"_lakebed_x":1}': "is reserved",
    b'{"id":9,"new":1,"New":2}': "has the field New in two cases",
    b'{"id":9,"s":{"y":1,"Y":2}}': "in two cases",
    b'{"id":9,"V":{"x":1}}': "int64|has another type",
}


def test_a_field_with_an_impossible_name_costs_no_other_message() -> None:
    for first in ([], values(b'{"id":0,"v":0}')):
        rounds = [first] if first else []
        for (hostile, error), at in itertools.product(HOSTILE_ROWS.items(), (0, 1, 2)):
            good = [b'{"id":1,"v":1,"s":{"y":5}}', b'{"id":2,"v":2,"l":[{"x":7}]}']
            good.insert(at, hostile)
            rows, errors = ingested(*rounds, values(*good))
            expected = {1: (1, {"y": 5}, None), 2: (2, None, [{"x": 7}])} | ({0: (0, None, None)} if first else {})
            found = {row["id"]: (row["v"], row["s"] and {"y": row["s"]["y"]}, row["l"]) for row in rows}
            is_row = found.pop(9, None) is not None
            assert found == expected, (hostile, at, found)
            assert is_row == (error is None), (hostile, at, rows)
            if error is not None:
                assert list(errors) == [f"t/{len(rounds)}/{at}"], (hostile, at, errors)
                assert any(part in errors[f"t/{len(rounds)}/{at}"] for part in error.split("|")), (hostile, errors)


def test_a_new_field_in_two_cases_of_its_letters_is_one_column() -> None:
    rows, errors = ingested(values(b'{"id":1,"Note":2}', b'{"id":2,"note":3}', b'{"id":3,"NOTE":null}'))
    assert (rows, errors) == ([{"id": 1, "Note": 2}, {"id": 2, "Note": 3}, {"id": 3, "Note": None}], {})


def test_an_impossible_name_of_every_message_under_a_transform_is_an_error_of_the_query() -> None:
    with pytest.raises(lakebed.errors.SchemaConflict, match="the column name 'a-b' is not possible"):
        ingested(values(b'{"id":1}', b'{"id":2}'), transform='SELECT id, 1 AS "a-b" FROM input')
    rows, errors = ingested(values(b'{"id":1,"a-b":5}'), transform='SELECT id, "a-b" AS ab FROM input')
    assert (rows, errors) == ([{"id": 1, "ab": 5}], {})


def test_a_message_without_any_field_is_bad_also_where_a_round_has_no_other() -> None:
    _, errors = ingested(values(b"{}", b'{"x": null}'), values(b'{"id":1}'))
    assert sorted(errors) == ["t/0/0", "t/0/1"], errors


def test_rounds_with_tombstones_and_values_go_on_after_the_first() -> None:
    settings = {"tombstones": "delete", "key_field": "id"}
    first: list[Message] = [(b"1", None), (b"1", b'{"id":1,"c":"a"}'), (b"2", b'{"id":2,"c":"b"}'), (b"2", None)]
    second: list[Message] = [(b"1", None), (b"3", b'{"id":3,"c":"d"}')]
    third: list[Message] = [(b"3", b'{"id":3,"c":"e"}'), (b"4", b'{"id":4,"c":"f"}'), (b"4", None)]
    for count, expected in ((1, {1: "a"}), (2, {3: "d"}), (3, {3: "e"})):
        rows, errors = ingested(*[first, second, third][:count], **settings)
        assert ({row["id"]: row["c"] for row in rows}, errors) == (expected, {})


def test_tombstones_before_there_is_a_table_create_none_and_the_position_moves_on() -> None:
    settings = {"tombstones": "delete", "key_field": "id"}
    assert ingested([(b"1", None)], **settings) == ([], {})
    rows, errors = ingested([(b"1", None)], [(b"1", b'{"id":1,"c":"a"}')], [(b"1", None)], **settings)
    assert (rows, errors) == ([], {})


def test_a_round_in_which_a_field_has_no_value_does_not_stop_a_transform_that_names_it() -> None:
    inserts, update = [change(1, n=None), wrapped(change(2, n=None))], json.loads(change(3, n=7))
    update |= {"op": "u", "before": {"id": 3, "n": 6}}
    plain = "SELECT after.id AS id, before.id AS old, after.n + 1 AS n FROM input WHERE op IS NOT NULL"
    rows, errors = ingested(values(inserts[0]), values(json.dumps(update).encode()), transform=plain)
    assert rows == [{"id": 1, "old": None, "n": None}, {"id": 3, "old": 3, "n": 8}], errors
    decoded = "SELECT id, n + 1 AS n FROM input"
    rows, errors = ingested(
        values(*inserts), values(json.dumps(update).encode()), transform=decoded, format="debezium-json"
    )
    assert rows == [{"id": 1, "n": None}, {"id": 2, "n": None}, {"id": 3, "n": 8}], errors
