"""A feed of changes on Spark: the source's rows in the table, and with the readers of its changes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from support.change_feed import BATCHES, Feed, Readers, content, create, serve
from support.sampling import rounds


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["mor", "cow"])
def test_a_feed_of_dataframes_gives_the_table_and_its_readers_the_sources_rows(
    kind: str, tmp_path: Path, spark: Any
) -> None:
    table, feed, readers = create(str(tmp_path / "t"), kind, "bucket", 9, spark), Feed(1), Readers()
    for number, batch in enumerate(islice(feed.batches(), rounds(BATCHES, 5))):
        table.upsert(spark.createDataFrame(batch))
        assert content(table) == feed.rows, f"after batch {number}"
        readers.read(table)
        assert readers.copy == feed.rows, f"after batch {number}"
        serve(table, number)
    assert table.indexes.verify().ok
