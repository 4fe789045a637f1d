"""A write completes only if each of its rows came to one task, and if the tasks account for each of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.local import LocalEngine, LocalRows
from lakebed.handles.create import CreateHandle
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import STATUS_SCHEMA, WriteStatus
from support.write_tables import SCHEMA, content, rows

GIVEN = [(n, "oslo", f"v{n}", n) for n in range(6)]
NEWER = [(n, "oslo", "newer", 100) for n in (0, 1, 1, 9)]
SET = {"v": "s.v", "ts": "s.ts"}
CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "lost": lambda table: table.slice(1),
    "doubled": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
}
VERBS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(*NEWER)),
    "insert": lambda t: t.insert(rows((7, "rome", "new", 1), (8, "rome", "new", 1))),
    "insert that drops": lambda t: t.insert(rows(*NEWER), options={"hoodie.datasource.insert.dup.policy": "drop"}),
    "bulk insert": lambda t: t.bulk_insert(rows((7, "rome", "new", 1), (8, "rome", "new", 1))),
    "overwrite": lambda t: t.insert_overwrite(rows((7, "rome", "new", 1), (8, "oslo", "new", 1))),
    "delete of rows": lambda t: t.delete(rows(*GIVEN[:2])),
    "delete by condition": lambda t: t.delete(where="id < 3"),
    "merge": lambda t: (
        t.merge(rows(*NEWER[1:3][:1], NEWER[3]))
        .when_matched_update({"v": "s.v", "ts": "s.ts"})
        .when_not_matched_insert()
        .execute()
    ),
    "update": lambda t: t.update({"v": "'set'"}, where="id < 3"),
}


def new_table(index: str, kind: str) -> Table:
    uri = f"memory://{uuid.uuid4().hex}"
    buckets = 2 if index == "bucket" else None
    t = lakebed.create(
        uri, SCHEMA, key="id", partition_by="city", ordering="ts", type=kind, index=index, buckets=buckets
    )
    t.upsert(rows(*GIVEN))
    return t


def changing(patch: pytest.MonkeyPatch, change: Callable[[pa.Table], pa.Table]) -> None:
    """The tasks that write get other rows than the write has."""
    group_map, map_rows = LocalEngine.group_map, LocalEngine.map

    def changed(rows: Any, schema: pa.Schema) -> Any:
        return LocalRows(change(rows.table)) if schema == STATUS_SCHEMA else rows

    patch.setattr(LocalEngine, "group_map", lambda e, r, f, s, **more: group_map(e, changed(r, s), f, s, **more))
    patch.setattr(LocalEngine, "map", lambda e, r, f, s: map_rows(e, changed(r, s), f, s))


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("index", "kind", "verbs"),
    [
        ("bucket", "mor", VERBS),
        ("simple", "cow", VERBS),
        ("bloom", "cow", ("upsert", "merge")),
        ("record", "mor", ("upsert", "merge")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_is_lost_or_doubled_on_its_way_ends_the_write(index: str, kind: str, verbs: Iterable[str]) -> None:
    for name in verbs:
        table = new_table(index, kind)
        for change, way in CHANGES.items():
            case = f"{name}, {change}"
            with pytest.MonkeyPatch.context() as patch:
                changing(patch, way)
                with pytest.raises(lakebed.SourceError, match="changed while they were written") as raised:
                    VERBS[name](table)
            assert raised.value.retryable, case
            assert "Run it again" in raised.value.hint, case
            assert content(table) == GIVEN, case
            assert not load_timeline(table.opened.storage, table.opened.config).pending, case
        VERBS[name](table)
        assert content(table) != GIVEN, f"{name}: unchanged rows are written"


def test_a_task_accounts_for_each_row_that_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table("simple", "cow")
    real = CreateHandle.write

    def forgetting(handle: CreateHandle, incoming: Any) -> list[WriteStatus]:
        first, *others = real(handle, incoming)
        return [replace(first, num_inserts=first.num_inserts - 1), *others]

    monkeypatch.setattr(CreateHandle, "write", forgetting)
    with pytest.raises(lakebed.LakebedError, match=r"2 rows came to file group .* and 1 are accounted for") as raised:
        table.upsert(rows((7, "rome", "new", 1), (8, "rome", "new", 1)))
    assert raised.value.context["num_inserts"] == 1
    monkeypatch.undo()
    assert content(table) == GIVEN
