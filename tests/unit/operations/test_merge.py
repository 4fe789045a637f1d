"""MERGE and UPDATE in this process: what DuckDB makes of the same statements, on every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    AmbiguousMerge,
    CommitConflict,
    InvalidOption,
    InvalidRecord,
    LakebedError,
    SchemaConflict,
    UnsupportedFeature,
)
from lakebed.model import COMMIT_ACTIONS
from lakebed.operations import merge_join, pipeline
from lakebed.operations.context import WriteContext
from lakebed.operations.pipeline import Verb
from lakebed.table import Table
from support.merges import CASES, SCHEMA, Case, by_duckdb, content, data, in_order, run

Make = Callable[..., Table]
INDEXES = ("bucket", "consistent", "bucket_groups", "simple", "bloom", "record", "global_simple", "global_bloom")
REFUSALS: dict[str, type[Exception]] = {"AmbiguousMerge": AmbiguousMerge, "InvalidRecord": InvalidRecord}


def of_case(make: Make, case: Case, **words: Any) -> Table:
    table = make(SCHEMA, key="id", **words)
    table.upsert(data(case.stored))
    return table


def commits(table: Table) -> list[Any]:
    return [i for i in table.timeline if i.is_completed and i.action in COMMIT_ACTIONS]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Make:
    numbers = iter(range(1000))

    def made(schema: Any = SCHEMA, **words: Any) -> Table:
        return lakebed.create(f"memory://merge/{request.node.name}/{next(numbers)}", schema, **words)

    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(("kind", "index"), list(product(("cow", "mor"), ("bucket", "simple"))))
def test_a_statement_gives_the_rows_that_duckdb_gives(make: Make, case: Case, kind: str, index: str) -> None:
    table = of_case(make, case, type=kind, index=index)
    if case.refused in REFUSALS:
        with pytest.raises(REFUSALS[case.refused]):
            run(table, case)
        assert content(table) == in_order(case.stored)
        assert len(commits(table)) == 1
        return
    run(table, case)
    expected = [(2, "x", 20, "q"), (3, "y", 30, None), (4, "y", None, "r")] if case.refused else by_duckdb(case)
    assert content(table) == expected
    assert content(lakebed.open(table.uri)) == expected
    assert table.indexes.verify().ok


@pytest.mark.parametrize("case", [CASES[0], CASES[5], CASES[6], CASES[-1], CASES[-4]], ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("kind", "index", "version"),
    [
        (kind, index, version)
        for kind, index, version in product(("cow", "mor"), INDEXES, (9, 8, 6))
        if not (index == "consistent" and kind == "cow") and not (index == "bucket_groups" and version == 6)
    ],
)
def test_statements_under_every_index_and_version(make: Make, case: Case, kind: str, index: str, version: int) -> None:
    table = of_case(make, case, type=kind, index=index, table_version=version)
    run(table, case)
    assert content(table) == by_duckdb(case)
    later = Case("later", [(2, "x", 7, "again"), (9, "z", 9, "n")], None, CASES[0].clauses)
    done = run(table, later)
    held = sum(row[0] == 2 for row in by_duckdb(case))
    looks_up = kind == "cow" or index not in ("bucket", "consistent")
    assert (done.updated, done.inserted, done.rows) == (*((held, 2 - held) if looks_up else (None, None)), 2)
    rest = [row for row in by_duckdb(case) if row[0] != 2]
    assert content(table) == in_order([*rest, *later.source])
    assert table.indexes.verify().ok


@pytest.mark.rest
@pytest.mark.parametrize(("name", "value"), [("_MAX_VALUES", 0), ("_MAX_VALUES", 2), ("_MAX_PAIRS", 1)])
def test_bounds_of_joins_change_no_rows(make: Make, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(merge_join, name, value)
    for case in [case for case in CASES if not case.refused and case.on != "t.id = s.id"]:
        table = of_case(make, case, index="simple")
        run(table, case)
        assert content(table) == by_duckdb(case), case.name


EVENTS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("at", pa.int64())])


def events(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(EVENTS.names, row, strict=True)) for row in rows], EVENTS)


def visible_rows(table: Table) -> list[tuple[Any, ...]]:
    return in_order([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()])


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
class TestEventTime:
    def test_an_update_with_an_older_ordering_value_changes_nothing(self, make: Make, kind: str, index: str) -> None:
        table = make(EVENTS, key="id", ordering="at", type=kind, index=index)
        table.upsert(events((1, "a", 1, 5), (2, "a", 2, 5), (3, "a", 3, 5)))
        source = events((1, "older", 9, 4), (2, "equal", 9, 5), (3, "newer", 9, 6))
        table.merge(source).when_matched_update().execute()
        assert visible_rows(table) == [(1, "a", 1, 5), (2, "equal", 9, 5), (3, "newer", 9, 6)]

    def test_an_update_that_does_not_set_the_ordering_column_always_counts(
        self, make: Make, kind: str, index: str
    ) -> None:
        table = make(EVENTS, key="id", ordering="at", type=kind, index=index)
        table.upsert(events((1, "a", 1, 5), (2, "a", 2, 5)))
        table.merge({"id": [1]}).when_matched_update({"v": "'set'"}).execute()
        table.update({"n": "n + 10"}, where="id = 2")
        assert visible_rows(table) == [(1, "set", 1, 5), (2, "a", 12, 5)]
        if kind == "mor":
            table.maintenance.compact()
        assert visible_rows(table) == [(1, "set", 1, 5), (2, "a", 12, 5)]

    def test_a_delete_wins_whatever_the_ordering_value_is(self, make: Make, kind: str, index: str) -> None:
        table = make(EVENTS, key="id", ordering="at", type=kind, index=index)
        table.upsert(events((1, "a", 1, 5), (2, "a", 2, 5)))
        done = table.merge(events((1, "x", 0, 1), (7, "x", 0, 1))).when_matched_delete().execute()
        assert (done.deleted, done.rows) == (1, 1)
        assert visible_rows(table) == [(2, "a", 2, 5)]
        table.upsert(events((1, "later", 1, 6)))
        assert visible_rows(table) == [(1, "later", 1, 6), (2, "a", 2, 5)]

    def test_a_null_ordering_value_of_a_new_row_is_refused(self, make: Make, kind: str, index: str) -> None:
        table = make(EVENTS, key="id", ordering="at", type=kind, index=index)
        table.upsert(events((1, "a", 1, 5)))
        with pytest.raises(InvalidRecord, match="ordering field 'at' is null"):
            table.merge(events((2, "b", 2, None))).when_not_matched_insert().execute()
        assert visible_rows(table) == [(1, "a", 1, 5)]


RIDES = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("note", pa.string())])


def rides(make: Make, **words: Any) -> Table:
    table = make(RIDES, key="id", partition_by="city", **words)
    table.upsert(
        {
            "id": [1, 2, 3, 4],
            "city": ["rome", "oslo", "rome", "bern"],
            "fare": [1.0, 2.0, 3.0, 4.0],
            "note": list("abcd"),
        }
    )
    return table


@pytest.mark.parametrize("kind", ["cow", "mor"])
class TestPartitions:
    def test_keys_are_matched_in_their_partition_where_on_has_it(self, make: Make, kind: str) -> None:
        table = rides(make, type=kind, index="bucket")
        source = {"id": [1, 2, 9], "city": ["rome", "rome", "oslo"], "fare": [10.0, 20.0, 90.0]}
        merge = table.merge(source, ["id", "city"]).when_matched_update({"fare": "t.fare + s.fare"})
        assert " by key: " in merge.explain()
        done = merge.when_not_matched_insert().execute()
        assert (done.path, done.updated, done.inserted) == ("key", 1, 2)
        assert visible_rows(table) == [
            (1, "rome", 11.0, "a"),
            (2, "oslo", 2.0, "b"),
            (2, "rome", 20.0, None),
            (3, "rome", 3.0, "c"),
            (4, "bern", 4.0, "d"),
            (9, "oslo", 90.0, None),
        ]

    @pytest.mark.parametrize("index", ["bucket", "simple", "global_simple", "record"])
    def test_keys_alone_are_matched_in_all_partitions(self, make: Make, kind: str, index: str) -> None:
        table = rides(make, type=kind, index=index)
        done = table.merge({"id": [1, 2, 9], "fare": [10.0, 20.0, 90.0]}).when_matched_update().execute()
        assert (done.path, done.updated) == ("join", 2)
        assert [row[:3] for row in visible_rows(table)] == [
            (1, "rome", 10.0),
            (2, "oslo", 20.0),
            (3, "rome", 3.0),
            (4, "bern", 4.0),
        ]
        assert table.partitions == ("bern", "oslo", "rome")

    @pytest.mark.parametrize(("index", "moves"), [("bucket", True), ("simple", True), ("record", False)])
    def test_rows_whose_partition_column_is_set_move(self, make: Make, kind: str, index: str, moves: bool) -> None:
        table = rides(make, type=kind, index=index)
        if not moves:
            with pytest.raises(UnsupportedFeature, match="leaves rows where they are"):
                table.update({"city": "upper(city)"}, where="id < 3")
            return
        done = table.update({"city": "'oslo'"}, where="id < 3")
        assert (done.updated, done.rows) == (2, 2)
        expected = [(1, "oslo", 1.0, "a"), (2, "oslo", 2.0, "b"), (3, "rome", 3.0, "c"), (4, "bern", 4.0, "d")]
        assert visible_rows(table) == expected
        assert table.locate([1])["partition_path"].to_pylist() == ["oslo"]
        assert table.indexes.verify().ok

    def test_an_index_that_moves_rows_moves_them(self, make: Make, kind: str) -> None:
        options = {"hoodie.record.index.update.partition.path": True}
        table = rides(make, type=kind, index="record", properties=options)
        table.update({"city": "'oslo'", "fare": 7}, where="id in (1, 4)", options=options)
        assert [row[:3] for row in visible_rows(table)] == [
            (1, "oslo", 7.0),
            (2, "oslo", 2.0),
            (3, "rome", 3.0),
            (4, "oslo", 7.0),
        ]
        assert table.indexes.verify().ok


def test_a_condition_that_on_has_twice_is_one(make: Make) -> None:
    table = rides(make, index="bucket")
    source = {"id": [1, 9], "city": ["rome", "oslo"], "fare": [10.0, 90.0]}
    for number, on in enumerate((["id", "id"], "t.id = s.id AND t.id = s.id", "t.id = s.id AND s.id = t.id")):
        done = table.merge(source, on).when_matched_update({"fare": f"s.fare + {number}"}).execute()
        assert (done.path, done.updated) == ("join", 1)
        assert [row[2] for row in visible_rows(table)] == [10.0 + number, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_all_columns_set_no_other_key_however_on_finds_the_row(make: Make, kind: str) -> None:
    stored = [(1, "x", 2, "p"), (2, "y", 1, "q")]
    for on in ("t.id = s.a", "t.id = s.id + 1", "t.a = s.id", "t.id < s.id", "t.id = s.a AND t.a = s.id"):
        table = make(key="id", type=kind, index="simple")
        table.upsert(data(stored))
        other = table.merge(data([(1, "n", 2, "m")] if "<" not in on else [(2, "n", 2, "m")]), on)
        with pytest.raises(UnsupportedFeature, match="would change the key field 'id' of record key"):
            other.when_matched_update().execute()
        assert content(table) == stored, on
        other.when_matched_update(except_columns=["id", "a"]).execute()
        found = 1 if on == "t.id < s.id" else 2
        assert content(table) == [(row[0], "n", row[2], "m") if row[0] == found else row for row in stored], on
    table = make(key="id", type=kind, index="simple")
    table.upsert(data(stored))
    for number, on in enumerate(("t.id = s.a", "t.id = s.id", "(t.id) = (s.id)", "t.a = s.a")):
        same = data([(1, "n", 1 if on == "t.id = s.a" else 2, f"{number}")])
        done = table.merge(same, on).when_matched_update().execute()
        assert (done.updated, done.path) == (1, "key" if number in (1, 2) else "join"), on
        assert content(table)[0] == (1, "n", 1 if number == 0 else 2, f"{number}"), on


def test_only_needed_columns_are_read(make: Make) -> None:
    for kind in ("cow", "mor"):
        table = rides(make, type=kind, index="bucket")
        source = {"id": [1], "city": ["rome"], "fare": [5.0]}
        plan = table.merge(source, ["id", "city"]).when_matched_update({"fare": "s.fare"}).explain()
        assert "reads       no column of the table, id, city, fare of the source" in plan
        plan = table.merge(source, ["id", "city"]).when_matched_update({"fare": "t.fare * 2"}).explain()
        assert "reads       fare of the table, id, city of the source" in plan


class TestEvolution:
    def test_columns_of_the_source_that_the_table_lacks_are_left_out(self, make: Make) -> None:
        table = make(key="id")
        table.upsert(data([(1, "x", 1, "p")]))
        source = {"id": [1, 2], "a": [7, 8], "extra": ["e", "f"]}
        table.merge(source).when_matched_update().when_not_matched_insert().execute()
        assert content(table) == [(1, "x", 7, "p"), (2, None, 8, None)]
        assert table.schema.names == SCHEMA.names

    @pytest.mark.parametrize("kind", ["cow", "mor"])
    def test_they_are_added_on_request(self, make: Make, kind: str) -> None:
        table = make(key="id", type=kind, index="bucket")
        table.upsert(data([(1, "x", 1, "p"), (3, "y", 3, "q")]))
        source = {"id": [1, 2], "a": [7, 8], "extra": ["e", "f"]}
        merge = table.merge(source).with_schema_evolution().when_matched_update().when_not_matched_insert()
        done = merge.execute()
        assert done.schema_changes == ("column extra is new (STRING)",)
        assert table.scan(["id", "a", "extra"]).to_arrow().sort_by("id").to_pylist() == [
            {"id": 1, "a": 7, "extra": "e"},
            {"id": 2, "a": 8, "extra": "f"},
            {"id": 3, "a": 3, "extra": None},
        ]


class TestRefusals:
    @pytest.fixture
    def table(self, make: Make) -> Table:
        table = make(key="id")
        table.upsert(data([(1, "x", 1, "p")]))
        return table

    def test_clauses_that_mean_nothing_are_refused_at_once(self, table: Table) -> None:
        merge = table.merge(data([(1, "x", 2, "p")]))
        with pytest.raises(InvalidOption, match="without clauses"):
            merge.execute()
        with pytest.raises(InvalidOption, match="would never run: when_matched_update before it has no condition"):
            merge.when_matched_update().when_matched_delete()
        with pytest.raises(InvalidOption, match="condition of when_matched_delete is SQL text"):
            merge.when_matched_delete(condition=True)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("on", "words", "error", "match"),
        [
            ("t.id = s.id", {"set": {"aa": "1"}}, InvalidOption, "no column 'aa'.*Did you mean 'a'"),
            ("t.id = s.id", {"set": {"a": "s.aa"}}, InvalidOption, "no column 'aa' in the source.*Did you mean 'a'"),
            ("t.id = s.id", {"set": {"a": "a + 1"}}, InvalidOption, "both the target and the source. Write t.a or s.a"),
            ("t.id = s.id", {"set": {"id": "s.id + 1"}}, UnsupportedFeature, "in the record key"),
            ("t.id = s.id", {"set": {"a": "s.b"}}, SchemaConflict, "column 'a' is BIGINT.*gives STRING"),
            ("t.id = s.id", {"set": {"a": "s.a; DROP TABLE t"}}, InvalidOption, "is no SQL expression"),
            ("t.id = s.id", {"set": {"a": "s.a + (SELECT 1)"}}, InvalidOption, "a subquery"),
            ("t.id = s.id", {"set": {"a": "levenshtein(s.b, 'x')"}}, InvalidOption, "runs on Spark only"),
            ("t.id = s.id", {"set": {}}, InvalidOption, "sets no column"),
            ("t.id = s.id", {"set": {"a": {"b": "x"}}}, InvalidOption, "SQL text or a constant, not dict"),
            ("t.id == ", {}, InvalidOption, "join condition"),
            ("t.idd = s.id", {}, InvalidOption, "no column 'idd' in the table"),
            (["nope"], {}, InvalidOption, "no column 'nope'"),
            ("t.id = s.id", {"condition": "s.a"}, InvalidOption, "not a condition"),
        ],
    )
    def test_a_text_that_means_nothing_is_named(
        self, table: Table, on: Any, words: dict[str, Any], error: type[Exception], match: str
    ) -> None:
        with pytest.raises(error, match=match):
            table.merge(data([(1, "x", 2, "p")]), on).when_matched_update(**words).execute()
        assert content(table) == [(1, "x", 1, "p")]

    def test_names_of_the_two_sides_differ(self, table: Table) -> None:
        with pytest.raises(InvalidOption, match="both called 't'"):
            table.merge(data([]), source_alias="T").when_matched_delete().execute()

    def test_a_new_row_needs_its_key(self, table: Table) -> None:
        with pytest.raises(InvalidOption, match="gives no value to id"):
            table.merge(data([])).when_not_matched_insert({"a": "s.a"}).execute()
        with pytest.raises(InvalidOption, match="target row"):
            table.merge(data([])).when_not_matched_insert({"id": "t.id"}).execute()

    def test_numbers_that_are_too_great_are_refused(self, table: Table) -> None:
        with pytest.raises(InvalidRecord, match="column a is BIGINT in the table, which does not keep"):
            table.update({"a": "(a + 4000000000000000000) * 4"})
        assert content(table) == [(1, "x", 1, "p")]

    def test_a_table_whose_rows_are_merged_field_by_field_takes_no_updates(self, make: Make) -> None:
        table = make(
            EVENTS, key="id", ordering="at", properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
        )
        with pytest.raises(UnsupportedFeature, match="field by field"):
            table.merge(events((1, "a", 1, 1))).when_matched_update().execute()
        table.merge(events((1, "a", 1, 1))).when_not_matched_insert().execute()
        assert visible_rows(table) == [(1, "a", 1, 1)]


def test_constants_are_values_and_the_time_is_known(make: Make) -> None:
    schema = pa.schema([*SCHEMA, ("seen", pa.timestamp("us", "UTC")), ("open", pa.bool_()), ("f", pa.float64())])
    table = make(schema, key="id")
    table.upsert([{"id": 1, "grp": "x", "a": 1, "b": "p", "seen": None, "open": False, "f": 0.5}])
    table.update({"open": True, "b": None, "a": "a + 1.9", "f": 2, "seen": "current_timestamp()"}, where="id = 1")
    (row,) = table.scan().to_arrow().to_pylist()
    assert (row["open"], row["b"], row["a"], row["f"]) == (True, None, 2, 2.0)
    assert row["seen"] is not None


def test_a_merge_that_lost_runs_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(key="id", index="simple")
    table.upsert(data([(1, "x", 1, "p"), (2, "y", 2, "q")]))
    merge = table.merge({"id": [1], "a": [5]}).when_matched_update({"a": "t.a + s.a"})
    other = lakebed.open(table.uri)
    from lakebed.operations.write_transaction import WriteTransaction

    commit, raced = WriteTransaction.commit, list[bool]()

    def late(tx: Any, *words: Any, **more: Any) -> Any:
        if not raced:
            raced.append(True)
            other.upsert(data([(1, "x", 100, "p")]))
        return commit(tx, *words, **more)

    monkeypatch.setattr(WriteTransaction, "commit", late)
    done = merge.execute(retries=2)
    assert (done.retries, content(table)) == (1, [(1, "x", 105, "p"), (2, "y", 2, "q")])


@pytest.mark.parametrize("mode", ["op_key_only", "data_before_after"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_change_log_has_what_a_merge_did(make: Make, kind: str, mode: str) -> None:
    keeps = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    table = make(key="id", type=kind, index="bucket", properties=keeps)
    first = table.upsert(data([(1, "x", 1, "p"), (2, "y", 2, "q"), (3, "z", 3, "r")]))
    merge = table.merge({"id": [1, 2, 9], "a": [10, 20, 90]}).when_matched_delete(condition="s.a = 20")
    merge.when_matched_update({"a": "t.a + s.a"}).when_not_matched_insert().execute()
    changes = {row["op"]: (row["before"], row["after"]) for row in table.cdc(first.checkpoint).to_arrow().to_pylist()}
    one, two = (dict(zip(SCHEMA.names, row, strict=True)) for row in ((1, "x", 1, "p"), (2, "y", 2, "q")))
    new = {"id": 9, "grp": None, "a": 90, "b": None}
    assert changes == {"u": (one, one | {"a": 11}), "d": (two, None), "i": (None, new)}
    assert sorted(table.changes(first.checkpoint).to_arrow()["id"].to_pylist()) == [1, 9]


def test_secondary_indexes_follow_merges_and_updates(make: Make) -> None:
    table = make(key="id", type="mor", index="record")
    table.upsert(data([(1, "x", 1, "p"), (2, "y", 2, "q")]))
    table.indexes.create("b")
    table.merge({"id": [1, 9], "b": ["new", "other"]}).when_matched_update().when_not_matched_insert().execute()
    table.update({"b": "concat(b, '!')"}, where="id < 2")
    assert table.scan(where="b = 'new!'").to_arrow()["id"].to_pylist() == [1]
    assert table.indexes.verify().ok


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(("kind", "index"), list(product(("cow", "mor"), ("bucket", "simple", "bloom"))))
def test_rows_of_one_key_in_two_partition_paths_are_changed_each(
    make: Make, kind: str, index: str, version: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])
    table = make(schema, key="id", partition_by="city", type=kind, index=index, table_version=version)

    def given(*rows: tuple[int, str, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def stored() -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())

    table.upsert(given((1, "a", 1), (1, "b", 2), (2, "a", 3)))
    assert table.update({"v": "v + 10"}, where="v < 3").updated == 2
    assert stored() == [(1, "a", 11), (1, "b", 12), (2, "a", 3)]
    changed = table.merge(given((1, "x", 50)), "id").when_matched_update({"v": "t.v + s.v"}).execute()
    assert (changed.updated, stored()) == (2, [(1, "a", 61), (1, "b", 62), (2, "a", 3)])
    deleted = table.merge(given((1, "x", 60)), "t.v > s.v").when_matched_delete().execute()
    assert (deleted.deleted, stored()) == (2, [(2, "a", 3)])
    twice = table.merge(given((5, "a", 1), (5, "b", 1)), "t.v = s.v").when_not_matched_insert()
    with pytest.raises(AmbiguousMerge, match="2 source rows would insert record key '5'"):
        twice.execute()
    with pytest.raises(AmbiguousMerge, match="2 source rows would change the row of record key '2'"):
        table.merge(given((2, "x", 1), (2, "y", 1)), "id").when_matched_update({"v": "s.v"}).execute()
    assert stored() == [(2, "a", 3)]


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(("kind", "index"), list(product(("cow", "mor"), ("bucket", "simple"))))
def test_a_row_does_not_move_to_a_partition_path_that_has_its_key(
    make: Make, kind: str, index: str, version: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])
    table = make(schema, key="id", partition_by="city", type=kind, index=index, table_version=version)
    before = [(1, "a", 1), (1, "b", 2), (2, "a", 3), (2, "b", 4), (3, "a", 5)]
    table.upsert([dict(zip(schema.names, row, strict=True)) for row in before])

    def stored() -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())

    holds = "would move record key '1' to partition path 'b', and that path holds a row of that key"
    with pytest.raises(InvalidRecord, match=holds):
        table.update({"city": "'b'"}, where="id = 1")
    source = {"id": [1], "city": ["b"], "v": [9]}
    with pytest.raises(InvalidRecord, match=holds):
        table.merge(source, "t.v < s.v and t.id = s.id").when_matched_update({"city": "s.city", "v": "s.v"}).execute()
    with pytest.raises(InvalidRecord, match="holds a row of that key"):  # the two would change places
        table.update({"city": "case when city = 'a' then 'b' else 'a' end"}, where="id < 3")
    with pytest.raises(InvalidRecord, match="'2' to partition path 'c', and several rows of that key move there"):
        table.update({"city": "'c'"}, where="id = 2")
    assert stored() == before
    assert table.update({"city": "'b'"}, where="id = 3 or (id = 1 and city = 'b')").updated == 2
    assert stored() == [*before[:-1], (3, "b", 5)]
    assert table.indexes.verify().ok


@pytest.mark.parametrize(("kind", "index"), list(product(("cow", "mor"), ("bucket", "simple", "global_simple"))))
def test_a_partition_column_that_on_equates_may_be_set(make: Make, kind: str, index: str) -> None:
    table = rides(make, type=kind, index=index)
    source = {"id": [1, 2], "city": ["rome", "oslo"], "fare": [10.0, 20.0]}
    same = table.merge(source, ["id", "city"]).when_matched_update({"city": "s.city", "fare": "s.fare"})
    assert same.execute().path == "key"
    moved = table.merge(source, ["id", "city"]).when_matched_update({"city": "'kyiv'"}, condition="t.id = 1").execute()
    assert (moved.path, moved.updated) == ("join", 1)
    expected = [(1, "kyiv", 10.0, "a"), (2, "oslo", 20.0, "b"), (3, "rome", 3.0, "c"), (4, "bern", 4.0, "d")]
    assert visible_rows(table) == expected
    assert [row["id"] for row in table.scan(where="city = 'kyiv'").to_arrow().to_pylist()] == [1]
    assert table.locate([1])["partition_path"].to_pylist() == ["kyiv"]


def test_a_constant_that_no_column_can_hold_is_refused_by_name() -> None:
    table = lakebed.create("memory://merge/constants", {"id": [1], "n": [1]}, key="id", index="simple")
    table.upsert({"id": [1], "n": [1]})
    for value, match in (
        (10**38, "the number 1000.* has no column: a decimal has at most 38 digits"),
        (Decimal("1e40"), "has no column: a decimal has at most 38 digits"),
    ):
        with pytest.raises(InvalidOption, match=match):
            table.update({"n": value})
    with pytest.raises(LakebedError, match="n"):
        table.update({"n": 2**63})
    with pytest.raises(SchemaConflict, match="column n is BIGINT in the table and ARRAY<BIGINT> in the data"):
        table.update({"n": [1]})
    with pytest.raises(InvalidOption, match="not dict"):
        table.update({"n": {"a": 1}})
    assert table.update({"n": -(2**63)}).updated == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": -(2**63)}]
    lakebed.drop(table.uri)


@pytest.mark.parametrize("on", ["id", "t.id = s.id OR t.id = s.n"])
@pytest.mark.parametrize("change", ["add", "drop"])
def test_columns_that_change_after_a_merge_is_planned_make_it_run_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, on: str, change: str
) -> None:
    table = make({"id": [1], "n": [10], "extra": [7]}, key="id", index="bucket", buckets=1)
    table.upsert({"id": [1, 2], "n": [10, 20], "extra": [7, 8]})
    merge = table.merge({"id": [2], "n": [5]}, on).when_matched_update({"n": "s.n"})
    changes = [change] * 2
    begin = pipeline.refuse_clustered_groups

    def begin_after_another_writer(context: WriteContext, verb: Verb) -> None:
        if changes and verb.operation != "ALTER_SCHEMA":
            other, columns = changes.pop(), lakebed.open(table.uri).columns
            columns.add(f"new{len(changes)}", "int") if other == "add" else columns.drop("extra")
            changes[:] = changes if other == "add" else []
        begin(context, verb)

    monkeypatch.setattr(pipeline, "refuse_clustered_groups", begin_after_another_writer)
    with pytest.raises(CommitConflict, match="changed the columns"):
        merge.execute()
    assert merge.execute(retries=2).updated == 1
    left = {"add": ["id", "n", "extra", "new1", "new0"], "drop": ["id", "n"]}[change]
    assert lakebed.open(table.uri).schema.names == left
    assert table.to_arrow(columns=["id", "n"]).sort_by("id").to_pydict() == {"id": [1, 2], "n": [10, 5]}
