"""Dropping a table, and whether there is one."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import TableNotFound
from lakebed.storage.faulty import Killed, Mode, crash_at
from write_tables import files, rows

FIRST = rows((1, "a", "x", 1), (2, "b", "x", 1))


def made(uri: str) -> lakebed.Table:
    table = lakebed.create(uri, FIRST, key="id", partition_by="city", ordering="ts", index="bucket", buckets=1)
    table.upsert(FIRST)
    return table


def test_a_dropped_table_is_gone_with_its_files_and_can_be_made_again(uri: str) -> None:
    assert not lakebed.exists(uri)
    made(uri)
    assert lakebed.exists(uri)
    lakebed.drop(uri)
    assert not lakebed.exists(uri)
    assert files(uri) == {}
    assert made(uri).count() == 2


def test_what_is_not_there_cannot_be_dropped(uri: str) -> None:
    with pytest.raises(TableNotFound, match="there is no table at") as raised:
        lakebed.drop(uri)
    assert "lakebed.exists" in raised.value.hint
    lakebed.drop(uri, missing_ok=True)


def test_a_damaged_table_is_there_and_can_be_dropped(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    made(uri)
    for name in ("hoodie.properties", "hoodie.properties.backup"):
        (tmp_path / "t" / ".hoodie" / name).write_bytes(b"\x00\xff")
    assert lakebed.exists(uri)
    lakebed.drop(uri)
    assert files(uri) == {}


@pytest.mark.parametrize("mode", ["kill", "unacknowledged", "fail"])
def test_a_drop_that_is_cut_off_shows_no_half_table_and_is_finished_by_the_next(mode: Mode) -> None:
    for at in count(1):
        uri = f"memory://drop-{mode}/{at}"
        made(uri)
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.drop(uri)
        if not crash.fired:
            break
        if lakebed.exists(uri):
            assert lakebed.open(uri).count() == 2
        lakebed.drop(uri, missing_ok=True)
        assert files(uri) == {}, crash
    assert at > 5
