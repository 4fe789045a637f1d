"""Where a batch ends, by the costs of its commits and the limits; and which commits a feed has."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from itertools import product

import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.read.commit_feed import BatchLimits, CommitCost, CommitFeed, newest_position
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.write_tables import SCHEMA, rows


def model(costs: list[CommitCost], limits: BatchLimits) -> int:
    """The greatest number of commits that fits all limits, at least one."""
    fits = 0
    for count in range(1, len(costs) + 1):
        part = costs[:count]
        totals = (count, sum(c.rows for c in part), sum(c.bytes for c in part), sum(c.files for c in part))
        bounds = (limits.commits, limits.rows, limits.bytes, limits.files)
        if all(bound is None or total <= bound for total, bound in zip(totals, bounds, strict=True)):
            fits = count
    return max(fits, min(1, len(costs)))


def test_a_batch_takes_as_many_commits_as_all_limits_allow() -> None:
    chance = random.Random(5)
    for _ in range(500):
        costs = [CommitCost(*(chance.randrange(5) for _ in range(3))) for _ in range(chance.randrange(8))]
        limits = BatchLimits(*(chance.choice([None, 1, 3, 8]) for _ in range(4)))
        assert limits.takes(iter(costs)) == model(costs, limits), (costs, limits)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (BatchLimits(), 3),
        (BatchLimits(commits=1), 1),
        (BatchLimits(commits=3), 3),
        (BatchLimits(rows=5), 1),
        (BatchLimits(rows=14), 1),
        (BatchLimits(rows=15), 2),
        (BatchLimits(bytes=1), 1),
        (BatchLimits(files=2), 2),
        (BatchLimits(commits=2, rows=100, files=1), 1),
    ],
)
def test_the_first_commit_over_a_limit_begins_the_next_batch(limits: BatchLimits, expected: int) -> None:
    costs = [CommitCost(10, 100, 1), CommitCost(5, 50, 1), CommitCost(1, 10, 1)]
    assert limits.takes(costs) == expected
    assert limits.is_limited == (limits != BatchLimits())


def test_no_more_costs_are_asked_for_than_a_batch_needs() -> None:
    asked: list[int] = []

    def costs() -> Iterator[CommitCost]:
        for n in range(100):
            asked.append(n)
            yield CommitCost(rows=1)

    assert BatchLimits(commits=2).takes(costs()) == 2
    assert asked == [0, 1, 2]


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"feed-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_feed_has_no_commits_of_services(uri: str, kind: str, version: int) -> None:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    table = lakebed.create(
        uri,
        SCHEMA,
        key="id",
        type=kind,
        index="simple",
        table_version=version,
        properties=quiet,  # pyright: ignore
    )
    written = [table.upsert(rows((1, "a", "1", 1), (2, "a", "1", 1)))]
    written.append(table.upsert(rows((1, "a", "2", 2))))
    if kind == "mor":
        table.maintenance.compact()
    table.maintenance.cluster()
    written.append(table.delete([2]))
    if kind == "mor":
        table.maintenance.compact()
    snapshot = open_snapshot(open_storage(uri))
    feed = CommitFeed(snapshot, "")
    assert [instant.time for _, instant in feed.commits] == [result.instant for result in written]
    ends = [CommitFeed(snapshot, "").end(limits) for limits in (BatchLimits(commits=2), BatchLimits())]
    assert ends == [written[1].checkpoint, written[2].checkpoint]
    assert CommitFeed(snapshot, "", upto=written[0].checkpoint).end(BatchLimits()) == written[0].checkpoint
    assert CommitFeed(snapshot, written[2].checkpoint).end(BatchLimits()) == written[2].checkpoint
    assert newest_position(snapshot) >= written[2].checkpoint


def test_rows_of_a_limit_are_those_that_commits_inserted_updated_and_deleted(uri: str) -> None:
    table = lakebed.create(uri, SCHEMA, key="id", index="simple")
    first = table.upsert(rows(*((n, "a", "1", 1) for n in range(4))))
    second = table.upsert(rows((1, "a", "2", 2), (9, "a", "2", 2)))
    third = table.delete([1])
    snapshot = open_snapshot(open_storage(uri))
    for most, expected in ((1, first), (5, first), (6, second), (7, third)):
        assert CommitFeed(snapshot, "").end(BatchLimits(rows=most)) == expected.checkpoint, most


def test_the_rewrite_of_an_erasure_is_no_batch_of_its_own(uri: str) -> None:
    """A batch of rows ends after it, since the view before is gone; one of changes ends with the delete."""
    table = lakebed.create(uri, SCHEMA, key="id", index="simple")
    first = table.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
    table.erase([1])
    snapshot = open_snapshot(open_storage(uri))
    timeline = snapshot.timeline
    for limits, cdc in product((BatchLimits(), BatchLimits(commits=1)), (False, True)):
        end = CommitFeed(snapshot, first.checkpoint, cdc=cdc).end(limits)
        last = next(i for i in timeline.commits if (i.completion_time or i.time) == end)
        assert timeline.commit_metadata(last).operation == ("DELETE" if cdc else "COMPACT")
        assert CommitFeed(snapshot, end, cdc=cdc).end(limits) == end, "there is nothing more to read"
