"""The timeline is read first, and the files are listed later: where the table was cleaned in between, what is left of
the older state is neither shown nor written to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, StorageError
from lakebed.read.reopening import MAX_LOOKS
from lakebed.slices.snapshot import CleanedView, Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from support.crash_tables import rows, state
from support.sampling import HISTORIES, todays_of

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
}
RETAINED = {"hoodie.clean.commits.retained": 1}
AT_ONCE = {"hoodie.compact.inline.max.delta.commits": 1}
_numbers = itertools.count()
KINDS = list(itertools.product((9, 8, 6), ("cow", "mor"), (True, False)))


def create(version: int, kind: str, *, metadata: bool, index: str = "simple") -> Table:
    table = lakebed.create(
        f"memory://cleaned-views/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={**QUIET, "hoodie.metadata.enable": metadata},
    )
    table.upsert(rows((0, "c0", "a", 0), (1, "c1", "a", 0)))
    return table


def upserts(table: Table) -> None:
    for n in (1, 2):
        table.upsert(rows((0, "c0", f"b{n}", n)))
        if table.properties["hoodie.table.type"] == "MERGE_ON_READ":
            table.maintenance.compact(options=AT_ONCE)


def overwrites(table: Table) -> None:
    for n in (1, 2):
        table.insert_overwrite(rows((0, "c0", f"b{n}", n)))


def drops(table: Table) -> None:
    table.delete_partitions(["c0"])
    for n in (1, 2):
        table.upsert(rows((1, "c1", f"b{n}", n)))


def archives(table: Table) -> None:
    for n in range(8):
        table.upsert(rows((0, "c0", f"b{n}", n)))
        table.maintenance.clean(options=RETAINED)
    table.maintenance.archive(options={**RETAINED, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})


CHANGES: list[Callable[[Table], None]] = [upserts, overwrites, drops, archives]


def visible_rows(scan: Any) -> set[tuple[int, str]]:
    return {(row["id"], row["v"]) for row in scan.to_arrow().to_pylist()}


def data_files(table: Table) -> set[str]:
    return {info.path for info in open_storage(table.uri).list() if not info.path.startswith(".hoodie/")}


@contextmanager
def before_files_are_listed(do: Callable[[], object], *, times: int = 1) -> Iterator[None]:
    """It happens when the files of a view are about to be listed, so often at most."""
    listing, left = Snapshot._listing, [times]  # pyright: ignore[reportPrivateUsage]

    def held(self: Snapshot, *given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            do()
        return listing(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        # a view is listed by the storage or by the metadata table: this is before both
        patch.setattr(Snapshot, "_listing", held)
        yield


@pytest.mark.parametrize(("change", "kind"), todays_of(CHANGES, KINDS, parts=2, variable=HISTORIES))
def test_a_scan_that_is_read_after_a_clean_shows_the_table_of_then(
    change: Callable[[Table], None], kind: tuple[int, str, bool]
) -> None:
    version, table_type, metadata = kind
    table = create(version, table_type, metadata=metadata)
    scan = table.scan()
    then, files = visible_rows(table.scan()), data_files(table)
    change(table)
    table.maintenance.clean(options=RETAINED)
    now = visible_rows(table.scan())
    # where no file of then was deleted the scan may go on with its own view
    assert visible_rows(scan) in ([now, then] if files <= data_files(table) else [now])
    assert scan.count() == table.count()


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_a_view_of_the_past_that_is_cleaned_before_it_is_read_is_refused(
    version: int, kind: str, metadata: bool
) -> None:
    table = create(version, kind, metadata=metadata)
    instant = table.timeline.to_arrow()["time"][0].as_py()
    scan = table.scan(as_of=instant)
    upserts(table)
    table.maintenance.clean(options=RETAINED)
    with pytest.raises(InvalidOption, match="cannot be read any more"):
        scan.to_arrow()


def cleaned_by_another(table: Table) -> Callable[[], None]:
    def do() -> None:
        other = lakebed.open(table.uri)
        upserts(other)
        other.maintenance.clean(options=RETAINED)

    return do


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_a_lookup_finds_a_key_whose_file_is_cleaned_meanwhile(version: int, kind: str, metadata: bool) -> None:
    table = create(version, kind, metadata=metadata)
    with before_files_are_listed(cleaned_by_another(table)):
        assert [row["v"] for row in table.get([0]).to_pylist()] == ["b2"]


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
@pytest.mark.parametrize("index", ["simple", "bucket", "bloom"])
def test_a_delete_finds_a_key_whose_file_is_cleaned_meanwhile(
    index: str, version: int, kind: str, metadata: bool
) -> None:
    table = create(version, kind, metadata=metadata, index=index)
    with before_files_are_listed(cleaned_by_another(table)):
        table.delete([0], retries=1)
    assert state(table.uri) == {1: ("c1", "a", 0)}


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_an_upsert_of_a_key_whose_file_is_cleaned_meanwhile_makes_no_second_row(
    version: int, kind: str, metadata: bool
) -> None:
    table = create(version, kind, metadata=metadata)
    with before_files_are_listed(cleaned_by_another(table)):
        table.upsert(rows((0, "c0", "mine", 9)), retries=1)
    assert state(table.uri) == {0: ("c0", "mine", 9), 1: ("c1", "a", 0)}


@pytest.mark.rest
def test_a_table_that_is_cleaned_all_the_time_is_not_read_for_ever() -> None:
    table = create(9, "cow", metadata=True)
    looks: list[int] = []
    is_busy: list[bool] = []

    def clean_it() -> None:
        if not is_busy:
            is_busy.append(True)
            looks.append(1)
            cleaned_by_another(table)()
            is_busy.clear()

    with before_files_are_listed(clean_it, times=1_000_000), pytest.raises(StorageError) as caught:
        table.scan().to_arrow()
    assert isinstance(caught.value, CleanedView)
    assert caught.value.retryable
    assert len(looks) == MAX_LOOKS + 1


def test_a_view_does_not_show_what_was_written_before_its_files_were_listed() -> None:
    table = create(9, "cow", metadata=True)
    with before_files_are_listed(lambda: lakebed.open(table.uri).upsert(rows((5, "c2", "other", 1)))):
        assert visible_rows(table.scan()) == {(0, "a"), (1, "a")}
    assert visible_rows(table.scan()) == {(0, "a"), (1, "a"), (5, "other")}


@pytest.mark.parametrize(("version", "kind", "metadata"), KINDS)
def test_a_write_after_a_commit_with_a_savepoint_begins_once(version: int, kind: str, metadata: bool) -> None:
    table = create(version, kind, metadata=metadata)
    table.savepoints.create()
    table.upsert(rows((0, "c0", "mine", 9)))
    assert table.timeline.to_arrow()["action"].to_pylist().count("rollback") == 0
    assert state(table.uri) == {0: ("c0", "mine", 9), 1: ("c1", "a", 0)}
