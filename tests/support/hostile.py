"""A table in which every name and text is HTML, as another writer may leave it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import lakebed
from lakebed.schema import avro
from lakebed.services import create_index
from lakebed.storage.opening import open_storage

EVIL = "<img src=x onerror=alert(1)>\"'&"
PARTITION = f"p{EVIL}"
RECORD = f"record?{urlencode({'key': EVIL})}"
QUERY = f"query?{urlencode({'filter': f'`{EVIL}` is not null'})}"
COLUMN = f"indexes/ranges?{urlencode({'column': EVIL})}"
PATHS = ("timeline", "files", "files/plans", "indexes", "indexes/ranges", RECORD, QUERY, COLUMN)
"""Pages of the inspector about such a table, below the address of the table; links lead to all others."""


def hostile_rows() -> pa.Table:
    struct = pa.array([{EVIL: EVIL}, {EVIL: "x"}])
    return pa.table({"id": [EVIL, "plain"], "part": [PARTITION, "other"], EVIL: [EVIL, "x"], "nested": struct})


def hostile_table(uri: str) -> lakebed.Table:
    """A table whose name, columns, keys, partition values, cells, index names, comments, savepoint and commit metadata
    are HTML, with files of other programs in its folders and an instant that is no JSON.

    lakebed makes no such column or index; these two checks are off while the table is made.
    """
    rows = hostile_rows()
    with pytest.MonkeyPatch.context() as patch:
        # other writers have no such checks
        patch.setattr(avro, "_is_avro_name", bool)
        patch.setattr(create_index, "_NAME", re.compile(".+"))
        named = {"hoodie.table.name": EVIL, "hoodie.table.cdc.enabled": True}
        t = lakebed.create(uri, rows, key="id", partition_by="part", type="mor", index="record", properties=named)
        t.upsert(rows, options={f"_{EVIL}": EVIL})
        t.upsert(rows)
        t.indexes.create(EVIL, column=EVIL, function="lower")
        t.indexes.create(EVIL)
        t.savepoints.create(name=EVIL, user=EVIL)
        t.columns.comment(EVIL, EVIL)
    storage, pending = open_storage(t.uri), "20300101000000000"
    for path in (
        f"other/{EVIL}.parquet",
        f"{PARTITION}/.{EVIL}_{pending}.log.1_0-0-0",
        f"{EVIL}/{EVIL}.html",
        f".hoodie/timeline/{pending}.{EVIL}",
        f".hoodie/timeline/{pending}.commit.requested",
        f".hoodie/timeline/{pending}.inflight",
    ):
        storage.write(path, EVIL.encode())
    return lakebed.open(t.uri)


def notebook_views(t: lakebed.Table) -> Mapping[str, str]:
    """What a notebook shows of a table, its views and the results of its calls, by their names. Nothing is written."""
    rows = hostile_rows()
    last = t.timeline.last
    assert last is not None
    shown = {
        "table": t,
        "timeline": t.timeline,
        "archive": t.timeline.archived,
        "timeline plot": t.timeline.plot(),
        "files": t.files,
        "skew": t.files.skew(),
        "properties": t.properties,
        "features": t.features,
        "columns": t.columns,
        "indexes": t.indexes,
        "index skew": t.indexes.skew(),
        "ranges": t.indexes.ranges(),
        "ranges plot": t.indexes.ranges().plot(EVIL),
        "advice": t.indexes.advise(),
        "consumers": t.consumers,
        "savepoint": t.savepoints.list()[0],
        "scan": t.scan(),
        "plan of a scan": t.scan(where=f"`{EVIL}` = 'x'").explain(),
        "changes": t.changes("earliest"),
        "change log": t.cdc("earliest"),
        "history": t.history([EVIL]),
        "plan of a write": t.explain(upsert=rows.select(["id", "part"]), partial=True),
        "delete": t.delete([EVIL], dry_run=True),
        "delete of partitions": t.delete_partitions([PARTITION], dry_run=True),
        "compaction": t.maintenance.compact(dry_run=True),
        "clustering": t.maintenance.cluster([EVIL], dry_run=True),
        "cleaning": t.maintenance.clean(dry_run=True),
        "archival": t.maintenance.archive(dry_run=True),
        "restore": t.restore(t.savepoints.list()[0], dry_run=True),
        "erasure": t.erase([EVIL], dry_run=True),
        "repair": t.maintenance.repair(dry_run=True),
        "doctor": t.maintenance.doctor(read_only=True),
    }
    return {name: view._repr_html_() for name, view in shown.items()}
