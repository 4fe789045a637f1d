"""Filters and joins by a hash field beside another text: which files they open, and what they open for caution."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.settings import ReadSettings
from lakebed.errors import InvalidOption
from lakebed.expressions.plain_keys import PLAIN_KEYS
from lakebed.filters.sql import parse_filter
from lakebed.format.base_file import read_footer
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import CommitMetadata
from lakebed.operations.context import WriteContext
from lakebed.read import keys
from lakebed.read.plan import ScanPlan, plan_scan, table_columns
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.opening import open_storage
from lakebed.testing import CountingStorage
from lakebed.timeline import plain_keys
from lakebed.timeline.plain_keys import PLAIN_KEYS_NOTE, KeysNote, newest_note, note_of

_numbers = itertools.count()
CITIES = [f"city{n}" for n in range(40)]
MISREAD = "x,city:city7"


def place() -> str:
    return f"memory://unit/plain/{next(_numbers)}"


def rows(ids: list[Any] | None = None, cities: list[str] = CITIES, value: int = 0) -> pa.Table:
    ids = [f"k{n}" for n in range(len(cities))] if ids is None else ids
    return pa.table({"city": cities, "id": ids, "v": [value] * len(ids)})


def new_table(data: pa.Table | None = None, uri: str = "", **given: Any) -> lakebed.Table:
    data = rows() if data is None else data
    named: dict[str, Any] = {"key": ["city", "id"], "index": "bucket", "buckets": 8, "hash_fields": "city"}
    table = lakebed.create(uri or place(), data, **named | given)
    table.upsert(data)
    return table


def view(table: lakebed.Table) -> Snapshot:
    return open_snapshot(open_storage(table.uri))


def note(table: lakebed.Table) -> KeysNote | None:
    snapshot = view(table)
    return newest_note(snapshot.timeline, snapshot.commits)


def footers(table: lakebed.Table) -> dict[str, str | None]:
    """What each base file says, by its bucket."""
    snapshot = view(table)
    files = {f.file_id[:8]: f.path for f in snapshot.base_files()}
    return {n: read_footer(snapshot.storage, path).key_values.get(PLAIN_KEYS) for n, path in files.items()}


def opened(table: lakebed.Table, condition: str) -> int:
    """How many of the file slices a filter leaves, by buckets alone."""
    return len(plan(view(table), condition).slices)


def plan(snapshot: Snapshot, condition: str) -> ScanPlan:
    predicate = parse_filter(condition, table_columns(snapshot))
    return plan_scan(snapshot, predicate, reads=ReadSettings(data_skipping=False))


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Runs a write of a writer that knows nothing of notes."""

    def run(write: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(WriteContext, "watched_keys", lambda *_: ())
            return write()

    return run


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_hash_field_next_to_a_text_opens_one_file_of_eight(kind: str, version: int) -> None:
    table = new_table(type=kind, table_version=version)
    table.upsert(rows(value=1))
    found = table.scan(where="city = 'city7'")
    assert found.to_arrow().to_pylist() == [{"city": "city7", "id": "k7", "v": 1}]
    assert opened(table, "city = 'city7'") == 1
    assert opened(table, "city IN ('city7', 'nowhere')") <= 2
    assert opened(table, "id = 'k7'") == 8


def test_no_footer_is_read_of_files_that_a_filter_rules_out() -> None:
    table = new_table()
    counted = CountingStorage(open_storage(table.uri))
    assert len(plan(open_snapshot(counted), "city = 'city7'").slices) == 1
    assert not [path for path in counted.opened if path.endswith(".parquet")]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_file_with_a_text_that_can_be_misread_is_opened(kind: str) -> None:
    table = new_table(type=kind)
    table.upsert(rows([MISREAD], ["city1"]))
    found = table.scan(["id"], where="city = 'city1'").to_arrow()
    assert sorted(found["id"].to_pylist()) == ["k1", MISREAD]
    assert opened(table, "city = 'city1'") == 2  # its own bucket, and the one that Hudi's hash gives the misread key
    assert len(note(table).but) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_file_is_trusted_again_once_it_is_rewritten_without_such_a_text(kind: str) -> None:
    table = new_table(type=kind)
    table.upsert(rows([MISREAD], ["city1"]))
    table.delete(pa.table({"city": ["city1"], "id": [MISREAD]}))
    if kind == "mor":
        assert opened(table, "city = 'city1'") == 2
        table.maintenance.compact()
    assert opened(table, "city = 'city1'") == 1
    assert note(table).but == frozenset()  # type: ignore[union-attr]
    assert set(footers(table).values()) == {"id"}


def test_row_groups_that_are_copied_bring_what_their_file_said(unwatched: Callable[..., Any]) -> None:
    many = rows([f"k{n}" for n in range(40_000)], ["city1"] * 20_000 + ["city2"] * 20_000)
    plain, strange = new_table(many, buckets=1), new_table(many, buckets=1)
    assert footers(plain) == {"00000000": "id"}
    plain.upsert(rows(["k5"], ["city1"], 1))
    assert footers(plain) == {"00000000": "id"}
    unwatched(lambda: strange.upsert(rows(["k5"], ["city1"], 1)))
    strange.upsert(rows(["k5"], ["city1"], 2))
    assert footers(strange) == {"00000000": None}


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_files_of_a_writer_without_notes_are_opened(kind: str, version: int, unwatched: Callable[..., Any]) -> None:
    table = new_table(type=kind, table_version=version)
    unwatched(lambda: table.upsert(rows([MISREAD], ["city1"])))
    ids = ["k1", MISREAD]
    assert sorted(table.scan(["id"], where="city = 'city1'").to_arrow()["id"].to_pylist()) == ids
    assert opened(table, "city = 'city1'") == 2
    table.upsert(rows(["k3"], ["city3"], 2))  # counts the other writer's files in
    assert sorted(table.scan(["id"], where="city = 'city1'").to_arrow()["id"].to_pylist()) == ids
    assert opened(table, "city = 'city1'") == 2


def test_a_table_without_notes_is_read_in_full(unwatched: Callable[..., Any]) -> None:
    table = unwatched(new_table)
    assert opened(table, "city = 'city7'") == 8
    table.upsert(rows(value=1))  # writes every file again
    assert opened(table, "city = 'city7'") == 1


def test_footers_describe_files_that_no_commit_names(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    monkeypatch.setattr(plain_keys, "MAX_NAMES", -1)  # no note is short enough
    table.upsert(rows(["k7"], ["city7"], 1))
    monkeypatch.setattr(plain_keys, "MAX_NAMES", 0)
    monkeypatch.setattr(plain_keys, "LOOKS_BACK", 1)
    table.upsert(rows(["k7"], ["city7"], 2))  # the first note of a new line
    assert note(table).since == note(table).instant  # type: ignore[union-attr]
    assert opened(table, "city = 'city7'") == 1
    monkeypatch.setattr(keys, "MAX_FOOTERS", 6)
    assert opened(table, "city = 'city7'") == 8


@pytest.mark.parametrize(("most", "names"), [(1, 1), (0, None)])
def test_a_note_that_names_too_many_files_is_not_written(
    most: int, names: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table()
    monkeypatch.setattr(plain_keys, "MAX_NAMES", most)
    instant = table.upsert(rows([MISREAD], ["city1"])).instant
    snapshot = view(table)
    written = note_of(snapshot.timeline.commit_metadata(snapshot.commits[-1]), instant, 9)
    assert (None if written is None else len(written.but)) == names
    assert opened(table, "city = 'city1'") == 2


def test_a_note_is_found_before_ten_commits_without_one_and_not_further(unwatched: Callable[..., Any]) -> None:
    table = new_table()
    for value in range(1, plain_keys.LOOKS_BACK):
        unwatched(lambda value=value: table.upsert(rows(["k7"], ["city7"], value)))
    assert opened(table, "city = 'city3'") == 2  # its own file, and the one of the writer without notes
    unwatched(lambda: table.upsert(rows(["k7"], ["city7"], 99)))
    assert opened(table, "city = 'city3'") == 8


def test_an_older_view_uses_its_own_note() -> None:
    table = new_table()
    instant = table.upsert(rows([MISREAD], ["city1"])).instant
    table.delete(pa.table({"city": ["city1"], "id": [MISREAD]}))
    assert note(table).but == frozenset()  # type: ignore[union-attr]
    found = table.scan(["id"], where="city = 'city1'", as_of=instant).to_arrow()
    assert sorted(found["id"].to_pylist()) == ["k1", MISREAD]


@pytest.mark.parametrize("index", ["simple", "bloom", "record"])
def test_tables_whose_index_looks_keys_up_have_no_notes(index: str) -> None:
    data = rows()
    table = lakebed.create(place(), data, key=["city", "id"], index=index)
    table.upsert(data)
    commit: CommitMetadata = view(table).timeline.commit_metadata(view(table).commits[-1])
    assert PLAIN_KEYS_NOTE not in commit.extra
    assert set(footers(table).values()) == {None}


def test_fully_hashed_keys_and_numbers_next_to_the_hash_field_have_no_notes() -> None:
    whole, number = new_table(hash_fields=None), new_table(rows([*range(40)]))
    assert note(whole) is None
    assert note(number) is None
    assert opened(number, "city = 'city7'") == 1


@pytest.mark.parametrize("other", ["text", "number"])
def test_an_empty_hash_field_is_found_next_to_any_other(other: str) -> None:
    ids = [f"k{n}" for n in range(10)] if other == "text" else [*range(10)]
    table = new_table(rows(ids, ["", "city1"] * 5))
    assert sorted(table.scan(["id"], where="city = ''").to_arrow()["id"].to_pylist()) == ids[::2]
    assert opened(table, "city = ''") == 1


def test_a_rescale_and_a_clustering_keep_what_files_say() -> None:
    table = new_table()
    table.upsert(rows([MISREAD], ["city1"]))
    table.maintenance.rescale(4)
    assert sorted(footers(table).values(), key=str) == [None, "id", "id", "id"]
    assert sorted(table.scan(["id"], where="city = 'city1'").to_arrow()["id"].to_pylist()) == ["k1", MISREAD]


def test_an_index_that_comes_later_trusts_what_its_change_wrote() -> None:
    data = rows()
    table = lakebed.create(place(), data, key=["city", "id"], index="simple")
    table.upsert(data)
    table.indexes.use("bucket", buckets=8, hash_fields=["city"])
    assert opened(table, "city = 'city7'") == 1


# -- joins


def test_tables_join_on_the_hash_field_alone() -> None:
    left, right = new_table(), new_table(rows([f"r{n}" for n in range(80)], CITIES * 2), buckets=4)
    joined = left.join(right, on="city")
    assert joined.buckets == 4
    expected = [(c, f"k{n}", f"r{m}") for n, c in enumerate(CITIES) for m in (n, n + 40)]
    found = [(r["city"], r["id"], r["id_right"]) for r in joined.to_arrow().to_pylist()]
    assert sorted(found) == sorted(expected)


def test_a_join_without_columns_compares_the_full_key_whatever_texts_are_stored() -> None:
    left, right = new_table(), new_table(rows([f"r{n}" for n in range(40)]))
    assert left.join(right).count() == 0
    assert left.join(left).count() == 40
    left.upsert(rows([MISREAD], ["city1"]))
    assert left.join(left).count() == 41


def test_a_join_on_the_hash_field_is_refused_for_texts_that_can_be_misread() -> None:
    left, right = new_table(), new_table()
    right.upsert(rows([MISREAD], ["city1"]))
    with pytest.raises(InvalidOption, match=r"does not compare 'id' with 'id': 1 file slice of table") as caught:
        left.join(right, on="city")
    assert "whole key" in caught.value.hint
    assert caught.value.context["file_slices"] == 1
    assert left.join(right, on=["city", "id"]).count() == 40
    with pytest.raises(InvalidOption, match="does not compare 'city' with 'city', by which both tables are bucketed"):
        left.join(right, on="id")


def test_tables_with_a_text_or_a_number_next_to_the_hash_field_join_on_it() -> None:
    left, right = new_table(), new_table(rows([*range(40)]))
    assert left.join(right, on="city").count() == 40
    left.upsert(rows([MISREAD], ["city1"]))
    with pytest.raises(InvalidOption, match="not made the same way"):
        left.join(right, on="city")
