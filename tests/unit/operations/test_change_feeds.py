"""A feed of changes through a table to readers of its changes, with services between, against the source's rows."""

from __future__ import annotations

from itertools import count

import pytest

import lakebed
from support.change_feed import Feed, Readers, content, create, serve, sums

_numbers = count()


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("index", ["bucket", "simple", "record"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_feed_of_thirty_batches_gives_the_table_and_its_readers_the_sources_rows(
    kind: str, index: str, version: int
) -> None:
    uri = f"memory://change-feeds/{next(_numbers)}"
    table, feed, readers = create(uri, kind, index, version), Feed(version), Readers()
    for number, batch in enumerate(feed.batches()):
        table.upsert(batch)
        assert content(table) == feed.rows, f"after batch {number}"
        readers.read(table)
        assert readers.copy == feed.rows, f"after batch {number}"
        serve(table, number)
    assert {city: one for city, one in readers.sums.items() if one[0]} == sums(feed.rows)
    assert table.indexes.verify().ok
    lakebed.drop(uri)
