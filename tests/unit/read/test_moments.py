from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.read.moments import to_instant_time


@pytest.mark.parametrize(
    ("when", "instant"),
    [
        ("20261121110149683", "20261121110149683"),
        ("20261121110149", "20261121110149999"),
        ("20261121", "20261121000000000"),
        ("2026-11-21", "20261121000000000"),
        ("2026-11-21 11:01:49", "20261121110149000"),
        ("2026-11-21T11:01:49.683Z", "20261121110149683"),
        ("2026-11-21T11:01:49.683+01:00", "20261121100149683"),
        (date(2026, 11, 21), "20261121000000000"),
        (datetime(2026, 11, 21, 11, tzinfo=UTC), "20261121110000000"),
        (datetime(2026, 11, 21, 11, 1, 49, 683999), "20261121110149683"),
    ],
)
def test_every_spelling_of_a_moment_names_its_instant(when: str | date, instant: str) -> None:
    assert to_instant_time(when, "UTC", option="as_of") == instant


@pytest.fixture
def saved(tmp_path: Path) -> tuple[lakebed.Table, list[lakebed.WriteResult]]:
    """A table of three writes, the first of which has a savepoint named before-migration."""
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id")
    writes = [table.upsert({"id": [1, 2], "n": [1, 1]})]
    table.savepoints.create(name="before-migration")
    writes += [table.upsert({"id": [2, 3], "n": [2, 2]}), table.delete([1])]
    return table, writes


AFTER = [{1: 1, 2: 1}, {1: 1, 2: 2, 3: 2}, {2: 2, 3: 2}]


def state(scan: Any) -> dict[int, int]:
    return {row["id"]: row["n"] for row in scan.to_arrow().to_pylist()}


MOMENTS: dict[str, tuple[Callable[[lakebed.Table, list[lakebed.WriteResult]], Any], int]] = {
    "number": (lambda t, w: 2, 1),
    "number as text": (lambda t, w: "3", 2),
    "number of NumPy": (lambda t, w: __import__("numpy").int64(1), 0),
    "savepoint's name": (lambda t, w: "before-migration", 0),
    "savepoint": (lambda t, w: t.savepoints.list()[0], 0),
    "result": (lambda t, w: w[1], 1),
    "instant": (lambda t, w: t.timeline[0], 0),
    "version": (lambda t, w: list(t.versions)[1], 1),
    "text of an instant": (lambda t, w: w[1].instant, 1),
    "datetime": (lambda t, w: datetime.now(UTC), 2),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_a_view_is_named_by_numbers_savepoints_and_results(
    kind: str, saved: tuple[lakebed.Table, list[lakebed.WriteResult]]
) -> None:
    table, writes = saved
    name, at = MOMENTS[kind]
    assert state(table.scan(as_of=name(table, writes))) == AFTER[at]


def test_changes_take_the_same_names(saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    table, writes = saved
    for start in (1, "before-migration", writes[0], table.timeline[0]):
        assert state(table.changes(start)) == {2: 2, 3: 2}
    assert state(table.changes(writes[0], 2)) == {2: 2, 3: 2}
    assert state(table.changes(2)) == {}


def test_sql_takes_names_and_numbers_as_versions(saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    table, _ = saved
    for version, at in (("'before-migration'", 0), ("1", 0), ("2", 1)):
        found = lakebed.sql(f"select id, n from t version as of {version}", {"t": table})
        assert {row["id"]: row["n"] for row in found.to_pylist()} == AFTER[at]
    lakebed.sql("restore table t to version as of 'before-migration'", {"t": table})
    assert state(table.scan()) == AFTER[0]


def test_restore_takes_a_name_and_a_number(saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    table, _ = saved
    table.restore(2)
    assert state(table.scan()) == AFTER[1]
    table.restore("before-migration")
    assert state(table.scan()) == AFTER[0]
    assert table.savepoints.delete("before-migration") is not None
    assert len(table.savepoints) == 0


REFUSED: dict[str, tuple[Any, str]] = {
    "no version": (4, "has no version 4. Its versions are 1 to 3"),
    "version 0": (0, "has no version 0"),
    "no savepoint": ("nope", "as_of 'nope' is neither a time nor the name of a savepoint. The table has savepoints"),
    "no time": ("2026-13-01", "as_of '2026-13-01' is neither a time nor"),
    "a fraction": (1.5, "not 1.5"),
    "a flag": (True, "not True"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_names_no_moment_is_refused(kind: str, saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    given, message = REFUSED[kind]
    with pytest.raises(InvalidOption) as raised:
        saved[0].scan(as_of=given)
    assert message in str(raised.value)


def test_a_result_without_an_instant_names_no_moment(saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    table, _ = saved
    with pytest.raises(InvalidOption, match="as_of is a WriteResult without an instant"):
        table.scan(as_of=table.delete([2], dry_run=True))


def test_a_name_of_two_savepoints_is_refused_with_both(
    saved: tuple[lakebed.Table, list[lakebed.WriteResult]],
) -> None:
    table, writes = saved
    table.savepoints.create(writes[1].instant, name="before-migration")
    with pytest.raises(InvalidOption, match="is the name of 2 savepoints") as raised:
        table.scan(as_of="before-migration")
    assert all(write.instant in str(raised.value) for write in writes[:2])


@pytest.mark.parametrize("name", ["2026-11-30", "3", "12345678", "latest", " "])
def test_a_savepoint_that_no_read_finds_by_its_name_is_made_with_a_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakebed.load(str(tmp_path / "t"), {"id": [1]}, key="id")
    saved = table.savepoints.create(name=name)
    (message,) = (record.getMessage() for record in caplog.records)
    assert f"as_of={name!r} is a time or the number of a version" in message
    assert saved.instant in message
    assert [one.name for one in table.savepoints] == [name]


@pytest.mark.parametrize("name", ["", "v3", "30 November"])
def test_a_savepoint_that_reads_find_has_no_warning(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakebed.load(str(tmp_path / "t"), {"id": [1]}, key="id")
    table.savepoints.create(name=name)
    assert caplog.records == []


def test_errors_name_the_argument_that_was_given(tmp_path: Path) -> None:
    table = lakebed.load(str(tmp_path / "t"), {"id": [1]}, key="id")
    for call, option in (
        (lambda: table.diff("yesterday"), "start"),
        (lambda: table.diff(1, "yesterday"), "end"),
        (lambda: table.scan(as_of="yesterday"), "as_of"),
    ):
        with pytest.raises(InvalidOption, match=f"^{option} 'yesterday' is neither a time nor"):
            call()
    with pytest.raises(InvalidOption, match="'2026-11-30' is a time, and a commit is needed"):
        table.restore("2026-11-30")
    with pytest.raises(InvalidOption, match="Its only version is 1;"):
        table.diff(2)


def test_a_name_that_reads_as_a_time_is_a_time(saved: tuple[lakebed.Table, list[lakebed.WriteResult]]) -> None:
    table, _ = saved
    table.savepoints.create(name="2020-01-01")
    with pytest.raises(InvalidOption, match="before its first commit"):
        table.scan(as_of="2020-01-01")


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 9])
def test_numbers_stay_after_archival(tmp_path: Path, kind: Any, version: int) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [0], "n": [0]}, key="id", type=kind, table_version=version)
    writes = [table.upsert({"id": [n], "n": [n]}) for n in range(10)]
    numbers = {v.instant: v.number for v in table.versions}
    assert [numbers[write.instant] for write in writes] == [*range(1, 11)]
    keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    table.maintenance.archive(options=keep)
    left = {v.instant: v.number for v in table.versions}
    assert 0 < len(left) < 10
    assert left == {instant: number for instant, number in numbers.items() if instant in left}
    assert table.scan(as_of=10).count() == 10
    with pytest.raises(InvalidOption, match="has no version 11"):
        table.scan(as_of=11)
    assert state(table.changes(10)) == {}


@pytest.mark.parametrize(("text", "message"), [("9999999", "has no version 9999999"), ("99999999", "is no time")])
def test_digits_are_a_number_or_a_time_by_their_count(
    saved: tuple[lakebed.Table, list[lakebed.WriteResult]], text: str, message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        saved[0].scan(as_of=text)
