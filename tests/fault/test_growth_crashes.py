"""Every storage mutation of a write that splits buckets as the place where it fails, dies, is torn, or gets no answer;
and writers that come in between.

Readers see the table before the write or after it, with all rows in their buckets; the next writer goes by the count
that the files have, and nothing is left over. Some mutations are struck, others each day; `LAKEBED_CRASH=all` strikes
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

import lakebed
from fault.test_rescaling_crashes import _look, prepared  # pyright: ignore[reportPrivateUsage]
from fault.test_two_writers import meanwhile
from lakebed.errors import CommitConflict
from lakebed.properties.file import PROPERTIES_PATH
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import NEXT, OPTIONS, copied, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = ((9, "mor"), (6, "cow"), (8, "mor"), (9, "cow"), (6, "mor"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
# One bucket of the partition path gets rows, the other one only splits.
BATCH = [(1, "c1", "split", 9), (1001, "c1", "split", 9)]
SMALL = {**OPTIONS, "lakebed.index.bucket.advised.bytes": 2000}
_ALL = whole(CRASH)


def grow(uri: str) -> lakebed.WriteResult:
    return lakebed.open(uri).upsert(rows(*BATCH), options=SMALL)


def _cases() -> Iterator[tuple[int, str, Mode]]:
    for at, mode in enumerate(FAULTS):
        for version, kind in KINDS if _ALL else [KINDS[at % len(KINDS)]]:
            yield version, kind, mode


@pytest.mark.parametrize(("version", "kind", "mode"), list(_cases()))
def test_a_split_happens_with_its_write_or_not_at_all(version: int, kind: str, mode: Mode) -> None:
    assert strike_each(lambda at: _crash(version, kind, mode, at), 11, "growth", mode) >= 10


def _crash(version: int, kind: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(version, kind, grows=True)
    after = put(model, *BATCH)
    with copied("memory", files) as uri:
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            grow(uri)
        if not crash.fired:
            return len(crash.mutations)
        try:
            has_happened = state(uri) == after
            found = after if has_happened else model
            _look(uri, found)
            NEXT.run(lakebed.open(uri))
            _look(uri, NEXT.model(found))
            # the copy of properties that were being written goes with the next change of them
            assert [left for left in leftovers(uri) if left != f"{PROPERTIES_PATH}.backup"] == []
            rules = lakebed.open(uri).properties.get("lakebed.index.bucket.partitions")
            assert rules == ("^c1$,4" if has_happened else None)
            grow(uri)
            _look(uri, put(NEXT.model(found), *BATCH))
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{version} {kind} {mode} {at}: {crash}")
            raise
    return None


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
def test_a_write_of_the_old_count_loses_against_a_split(version: int, kind: str) -> None:
    files, model = prepared(version, kind, grows=True)
    for retries in (0, 1):
        with copied("memory", files) as uri:
            # a partition path of its own: no file group is touched by both
            with meanwhile("create", lambda uri=uri: grow(uri), "c7/"):
                table, given = lakebed.open(uri), (77, "c7", "new", 1)
                if not retries:
                    with pytest.raises(CommitConflict, match="index"):
                        table.upsert(rows(given), options=OPTIONS)
                    _look(uri, put(model, *BATCH))
                    continue
                assert table.upsert(rows(given), options=OPTIONS, retries=retries).retries == 1
            _look(uri, put(model, *BATCH, given))


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_split_loses_against_a_write_that_came_first(version: int, kind: str, retries: int) -> None:
    files, model = prepared(version, kind, grows=True)
    given = (3, "c1", "first", 9)
    with copied("memory", files) as uri:
        other = lakebed.open(uri)
        # as a file is made that only the new count has
        with meanwhile("create", lambda: other.upsert(rows(given), options=OPTIONS), "c1/00000003-"):
            table = lakebed.open(uri)
            if retries:
                done = table.upsert(rows(*BATCH), options=SMALL, retries=retries)
                assert (done.retries, len(done.bucket_changes)) == (1, 1)
                _look(uri, put(model, given, *BATCH))
            else:
                with pytest.raises(CommitConflict):
                    table.upsert(rows(*BATCH), options=SMALL)
                _look(uri, put(model, given))
        grow(uri)
        _look(uri, put(model, given, *BATCH))
        assert leftovers(uri) == []


def test_a_split_does_not_mind_writes_to_other_partition_paths() -> None:
    files, model = prepared(9, "cow", grows=True)
    with copied("memory", files) as uri:
        other, given = lakebed.open(uri), (0, "c0", "newest", 9)
        with meanwhile("create", lambda: other.upsert(rows(given), options=OPTIONS), "c1/00000003-"):
            assert grow(uri).bucket_changes
        _look(uri, put(model, given, *BATCH))


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
@pytest.mark.parametrize("commits", [False, True])
def test_a_stage_sees_the_buckets_that_it_splits(version: int, kind: str, commits: bool) -> None:
    files, model = prepared(version, kind, grows=True)
    after = put(model, *BATCH)
    with copied("memory", files) as uri:
        table = lakebed.open(uri)
        with table.stage() as staged:
            assert len(staged.upsert(rows(*BATCH), options=SMALL).bucket_changes) == 1
            for key, row in after.items():
                assert [one["v"] for one in staged.get([key]).to_pylist()] == [row[1]]
                assert staged.scan(where=f"id = {key}").to_arrow()["v"].to_pylist() == [row[1]]
            _look(uri, model)
            if commits:
                staged.commit()
        _look(uri, after if commits else model)
        assert leftovers(uri) == []
