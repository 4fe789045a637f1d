"""Change logs that writes keep: what `cdc` gives is what a dict of rows went through, commit by commit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.log_file import BlockType, avro_records, read_blocks
from lakebed.storage import open_storage
from support.golden_tables import golden
from support.sampling import HISTORIES, todays_of
from support.write_tables import SCHEMA, content, files, last_commit, rows

MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
Row = tuple[Any, ...]
Change = tuple[str, Row | None, Row | None]


def logged_table(name: str, mode: str = "DATA_BEFORE_AFTER", **words: Any) -> lakebed.Table:
    given: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"} | words
    properties = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    return lakebed.create(f"memory://{name}", SCHEMA, **given, properties=properties)


def changes(table: lakebed.Table, start: str = "000", **options: Any) -> list[Change]:
    found = lakebed.open(table.uri).cdc(start, **options).to_arrow().to_pylist()
    return [(r["op"], _values(r["before"]), _values(r["after"])) for r in found]


def _values(image: dict[str, Any] | None) -> Row | None:
    return None if image is None else tuple(image.values())


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_logs_what_hudi_logs(mode: str, version: int) -> None:
    table = logged_table(f"modes-{mode}-{version}", mode, table_version=version)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "y", 1), (3, "a", "z", 1)))
    assert not any(name.endswith(".cdc") for name in files(table.uri))
    table.upsert(rows((1, "a", "x2", 2), (2, "a", "late", 0), (4, "a", "new", 1)))
    (stat,) = last_commit(table).stats["a"]
    assert stat.cdc_stats is not None
    (path,) = stat.cdc_stats
    data = files(table.uri)[path]
    assert stat.cdc_stats == {path: len(data)}
    token = stat.path.rpartition("/")[2].split("_")[1]
    instant = last_instant(table)
    assert path == f"a/.{stat.file_id}_{instant}.log.1_{token}.cdc"
    (block,) = read_blocks(data)
    assert block.type is BlockType.CDC_DATA
    assert sorted(block.headers) == [0, 2]
    assert block.headers[0] == instant
    columns = ("id", "city", "v", "ts")
    old, new, added = (
        dict(zip(columns, r, strict=True)) for r in ((1, "a", "x", 1), (1, "a", "x2", 2), (4, "a", "new", 1))
    )
    wanted = {
        "OP_KEY_ONLY": [{"op": "u", "record_key": "1"}, {"op": "i", "record_key": "4"}],
        "DATA_BEFORE": [
            {"op": "u", "record_key": "1", "before": old},
            {"op": "i", "record_key": "4", "before": None},
        ],
        "DATA_BEFORE_AFTER": [
            {"op": "u", "ts_ms": instant, "before": old, "after": new},
            {"op": "i", "ts_ms": instant, "before": None, "after": added},
        ],
    }
    assert avro_records(block) == wanted[mode]
    assert changes(table)[3:] == [("u", (1, "a", "x", 1), (1, "a", "x2", 2)), ("i", None, (4, "a", "new", 1))]


def last_instant(table: lakebed.Table) -> str:
    return [i.time for i in lakebed.open(table.uri).timeline][-1]


@pytest.mark.parametrize("mode", MODES)
def test_deletes_overwrites_and_dropped_partitions(mode: str) -> None:
    table = logged_table(f"deletes-{mode}", mode)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "y", 1), (3, "b", "z", 1), (5, "c", "w", 1)))
    start = lakebed.open(table.uri).cdc("000").end
    table.delete([1, 77])
    table.insert_overwrite(rows((9, "a", "o", 1)))
    table.delete([3])
    table.delete_partitions("c")
    assert changes(table, start) == [
        ("d", (1, "a", "x", 1), None),
        ("d", (2, "a", "y", 1), None),
        ("i", None, (9, "a", "o", 1)),
        ("d", (3, "b", "z", 1), None),
        ("d", (5, "c", "w", 1), None),
    ]


def test_the_metadata_table_lists_change_logs() -> None:
    table = logged_table("listed")
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "x2", 2)))
    assert "no difference" in str(table.indexes.verify())


@pytest.mark.parametrize(
    ("mode", "index", "type_"),
    todays_of(MODES, ["simple", "bucket", "record", "global_simple"], ["cow", "mor"], parts=2, variable=HISTORIES),
)
def test_random_histories_come_back_change_by_change(mode: str, index: str, type_: str) -> None:
    chance = random.Random(f"{mode}{index}{type_}")
    words: dict[str, Any] = {"type": type_} | ({"buckets": 2} if index == "bucket" else {})
    if chance.random() < 0.5:
        words["sort"] = "key"
    table = logged_table(f"random-{mode}-{index}-{type_}", mode, index=index, **words)
    state: dict[tuple[int, str], Row] = {}
    start = "000"
    for step in range(10):
        before = dict(state)
        op = chance.choice(("upsert", "upsert", "upsert", "delete", "insert_overwrite"))
        if not step:
            op = "upsert"
        if op == "delete":
            keys = chance.sample(range(20), 4)
            table.delete(keys)
            state = {k: r for k, r in state.items() if k[0] not in keys}
        else:
            # a key stays in its partition path, so that every index finds it there
            batch = [(i, "ab"[i % 2], f"{step}.{i}", chance.randint(0, 6)) for i in chance.sample(range(20), 6)]
            if op == "upsert":
                table.upsert(rows(*batch))
            else:
                table.insert_overwrite(rows(*batch))
                gone = {row[1] for row in batch}
                state = {k: r for k, r in state.items() if k[1] not in gone}
            for row in batch:
                key = row[0], row[1]
                if key not in state or row[3] >= state[key][3]:
                    state[key] = row
        stored = {(row[0], row[1]): row for row in content(table)}
        if type_ == "cow":
            assert stored == state
        state = stored  # a log record may bring a base row back: what the merge gives is what counts
        found = lakebed.open(table.uri).cdc(start)
        start = found.end
        given = sorted(changes_of(found), key=repr)
        if op == "insert_overwrite":
            assert applied(before, given) == state
        else:
            assert given == sorted(differences(before, state), key=repr), (step, op)
    whole = changes(table)
    assert applied({}, whole) == state


def changes_of(found: Any) -> list[Change]:
    return [(r["op"], _values(r["before"]), _values(r["after"])) for r in found.to_arrow().to_pylist()]


def differences(before: dict[Any, Row], after: dict[Any, Row]) -> list[Change]:
    found: list[Change] = []
    for key in {*before, *after}:
        old, new = before.get(key), after.get(key)
        if old != new:
            found.append(("i" if old is None else "d" if new is None else "u", old, new))
    return found


def applied(before: dict[Any, Row], given: list[Change]) -> dict[Any, Row]:
    """The rows after the changes; of one key a delete comes before an insert."""
    state = dict(before)
    for _, old, new in sorted(given, key=lambda change: 0) if before == {} else sorted(given, key=_deletes_first):
        if old is not None:
            key = old[0], old[1]
            assert state[key] == old
            del state[key]
        if new is not None:
            assert (new[0], new[1]) not in state
            state[new[0], new[1]] = new
    return state


def _deletes_first(change: Change) -> bool:
    return change[2] is not None


@pytest.mark.parametrize("version", [6, 8, 9])
def test_log_files_of_groups_without_a_base_file_give_their_changes(version: int) -> None:
    table = logged_table(f"ring-{version}", type="mor", index="consistent", buckets=1, table_version=version)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "y", 1)))
    second = table.upsert(rows((1, "a", "x2", 2), (2, "a", "late", 0), (3, "a", "z", 1)))
    table.delete([2])
    assert changes(table, second.checkpoint) == [("d", (2, "a", "y", 1), None)]
    assert changes(table) == [
        ("i", None, (1, "a", "x", 1)),
        ("i", None, (2, "a", "y", 1)),
        ("u", (1, "a", "x", 1), (1, "a", "x2", 2)),
        ("i", None, (3, "a", "z", 1)),
        ("d", (2, "a", "y", 1), None),
    ]


@pytest.mark.parametrize("sort", ["key", "none"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("merge", ["event_time", "PartialUpdateAvroPayload"])
def test_a_merge_that_changes_no_row_writes_no_file(merge: str, index: str, sort: Any) -> None:
    """With one that says of no change, `cdc` over its commit would fail."""
    table = logged_table(f"lost-{merge}-{index}-{sort}", merge=merge, index=index, sort=sort)
    table.upsert(rows((1, "a", "x", 5), (2, "a", "y", 5)))
    before = {name for name in files(table.uri) if not name.startswith(".hoodie")}
    some = rows((1, "a", "late", 3), (2, "a", "later", 2)).select(["id", "city", "v", "ts"])
    lost = (
        table.upsert(some) if merge != "event_time" else table.upsert(some.select(["id", "city", "ts"]), partial=True)
    )
    assert (lost.updated, lost.unchanged) == (0, 2)
    assert {name for name in files(table.uri) if not name.startswith(".hoodie")} == before
    assert changes(table) == [("i", None, (1, "a", "x", 5)), ("i", None, (2, "a", "y", 5))]
    assert lakebed.open(table.uri).indexes.verify().ok


def test_commits_before_the_change_log_are_named() -> None:
    table = lakebed.create("memory://late-log", SCHEMA, key="id", partition_by="city", ordering="ts", index="simple")
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "x2", 2)))
    unlogged = last_instant(table)
    storage = open_storage(table.uri)
    properties = storage.read(".hoodie/hoodie.properties").decode()
    storage.write(
        ".hoodie/hoodie.properties",
        properties.replace("hoodie.table.cdc.enabled=false", "hoodie.table.cdc.enabled=true").encode(),
    )
    table.upsert(rows((1, "a", "x3", 3)))
    with pytest.raises(InvalidOption, match=f"{unlogged}.*logged no change"):
        changes(table)
    assert changes(table, unlogged) == [("u", (1, "a", "x2", 2), (1, "a", "x3", 3))]


def test_a_file_that_was_cleaned_is_named() -> None:
    table = logged_table("cleaned", "OP_KEY_ONLY")
    table.upsert(rows((1, "a", "x", 1)))
    first = next(name for name in files(table.uri) if name.endswith(".parquet") and not name.startswith(".hoodie"))
    table.upsert(rows((1, "a", "x2", 2)))
    start = next(i.time for i in table.timeline)
    open_storage(table.uri).delete(first)
    with pytest.raises(lakebed.LakebedError, match="is not there"):
        changes(table, start)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_many_changes_of_one_file_group(type_: str, mode: str) -> None:
    table = logged_table(f"many-{type_}-{mode}", mode, type=type_, partition_by=None)
    table.upsert(rows(*((n, "a", f"old{n}", 1) for n in range(5000))))
    start = lakebed.open(table.uri).cdc("000").end
    table.upsert(rows(*((n, "a", f"new{n}", 2) for n in range(1000, 7000))))
    found = sorted(changes(table, start), key=lambda change: change[2] or ())
    updated = [("u", (n, "a", f"old{n}", 1), (n, "a", f"new{n}", 2)) for n in range(1000, 5000)]
    assert found == [*updated, *(("i", None, (n, "a", f"new{n}", 2)) for n in range(5000, 7000))]


def test_archived_commits_are_named(tmp_path: Path) -> None:
    folder = golden("v9_cow_archival").unpack(tmp_path)
    properties = folder / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    assert "hoodie.table.cdc.enabled=false" in text
    properties.write_text(text.replace("hoodie.table.cdc.enabled=false", "hoodie.table.cdc.enabled=true"))
    table = lakebed.open(str(folder))
    with pytest.raises(InvalidOption, match="archived") as raised:
        table.cdc("000").to_arrow()
    first = str(raised.value.context["first_active"])
    assert first in [i.completion_time for i in table.timeline]
    with pytest.raises(InvalidOption, match="logged no change"):
        table.cdc(first).to_arrow()


def test_cleaned_files_are_distinguished_from_lost_ones(tmp_path: Path) -> None:
    folder = golden("v9_cow_cdc_op_key_only").unpack(tmp_path)
    table = lakebed.open(str(folder))
    commits = list(table.timeline)
    oldest = next(folder.glob(f"*/*_{commits[0].time}.parquet"))
    oldest.unlink()
    with pytest.raises(CorruptFile, match=f"{oldest.name}.*is not there"):
        table.cdc("000").to_arrow()
    # Hudi's own empty clean of that time: nothing is read of it but its name
    (folder / ".hoodie" / "timeline" / f"{int(commits[-1].time) + 1}.clean.requested").write_bytes(b"")
    (folder / ".hoodie" / "timeline" / f"{int(commits[-1].time) + 1}.clean.inflight").write_bytes(b"")
    done = f"{int(commits[-1].time) + 1}_{int(str(commits[-1].completion_time)) + 1}.clean"
    (folder / ".hoodie" / "timeline" / done).write_bytes(b"")
    with pytest.raises(InvalidOption, match=r"it was cleaned.*retained"):
        lakebed.open(str(folder)).cdc("000").to_arrow()
    assert lakebed.open(str(folder)).cdc(str(commits[2].completion_time)).count() > 0
