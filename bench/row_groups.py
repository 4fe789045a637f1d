"""Merges that copy row groups as bytes beside merges that encode every row: CPU seconds of this process, by turns.

    python bench/row_groups.py                          row groups of 8,192 to 131,072 rows, a wide table, stitching
    python bench/row_groups.py --rows 200000 --rounds 1 a quick look
    python bench/row_groups.py --only wide

One file group of 1,000,000 rows x 12 columns (five of them meta columns), zstd, local disk.
`lakebed.write.copy.row.groups` is what differs between the two ways. Bars: an upsert into one eighth of the file, 2 of
100 columns, random keys, files put together.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bars import Bar

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Task
from lakebed.handles import file_writer
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.stored_rows import put_file
from lakebed.metadata.lookups import open_snapshot
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.slices.reader import SliceReader
from lakebed.storage import open_storage
from lakebed.table import Table

SIZES = (8_192, 16_384, 32_768, 65_536, 131_072)
PLAIN = {"lakebed.write.copy.row.groups": False}
GROUP = 131_072
Costs = dict[str, float]


def rows_of(count: int, dice: np.random.Generator) -> pa.Table:
    """Random keys of 36 characters, texts of low and middling variety, numbers, a time."""
    high, low = (dice.integers(0, 1 << 62, count) for _ in range(2))
    words = pa.array([f"word-{n:05d}" for n in range(5_000)])
    columns: dict[str, Any] = {
        "id": pa.array([f"{a:018x}{b:018x}" for a, b in zip(high.tolist(), low.tolist(), strict=True)]),
        "city": words.take(pa.array(dice.integers(0, 50, count))),
        "word": words.take(pa.array(dice.integers(0, len(words), count))),
        "note": pa.array([f"note {n} and more" for n in dice.integers(0, 10**9, count).tolist()]),
        "quantity": pa.array(dice.integers(0, 100, count)),
        "price": pa.array(dice.random(count)),
        "ts": pa.array(np.zeros(count, np.int64)),
    }
    return pa.table(columns)


def some_rows(rows: pa.Table, among: Any, count: int, dice: np.random.Generator, turn: int) -> pa.Table:
    """Some of the rows with later times and other numbers."""
    some = rows.take(pa.array(dice.choice(among, count, replace=False)))
    some = some.set_column(6, "ts", pa.array(np.full(len(some), turn)))
    return some.set_column(5, "price", pa.array(dice.random(len(some))))


def cpu(run: Callable[[], Any]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def table_of(folder: Path, name: str, rows: pa.Table, **words: Any) -> Table:
    properties = {"hoodie.metadata.enable": False, **words.pop("properties", {})}
    given: dict[str, Any] = {"key": "id", "index": "bucket", "buckets": 1, "properties": properties, **words}
    table = lakebed.create(str(folder / name), rows.schema, **given)
    table.bulk_insert(rows)
    return table


def by_turns(table: Table, batches: Callable[[int], pa.Table], rounds: int, **options: Any) -> tuple[float, float]:
    """The medians of both ways: every row encoded, row groups copied."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(rounds):
        for copies in (False, True):
            batch = batches(2 * turn + copies + 1)
            way = options if copies else {**options, **PLAIN}
            spent[copies].append(cpu(lambda b=batch, w=way: lakebed.open(table.uri).upsert(b, options=w)))
            clean(table)
    return median(spent[False]), median(spent[True])


def clean(table: Table) -> None:
    """Old versions of the file are taken away, or the disk fills up."""
    current = {file.path for file in lakebed.open(table.uri).scan().files}
    for path in Path(table.uri).glob("*.parquet"):
        if path.name not in current:
            path.unlink()


def sizes(folder: Path, count: int, rounds: int) -> list[Bar]:
    dice = np.random.default_rng(1)
    rows = rows_of(count, dice)
    eighth = count // 8
    few, many = min(2_000, eighth), count // 20
    found: list[Bar] = []
    line = "{:<14}{:>6}{:>22}{:>22}{:>22}{:>7}"
    print(line.format("row group", "MB", "1 eighth", "10 random keys", "1 in 20", "scan"))
    kinds = [(f"{size:,}", size, "none") for size in SIZES] + [("8,192 sorted", 8_192, "key")]
    for name, size, sort in kinds:
        file_writer.ROW_GROUP_ROWS = size
        table = table_of(folder, f"t{size}{sort}", rows, ordering="ts", sort=sort)
        places = (pc.sort_indices(rows["id"]) if sort == "key" else pa.array(range(count))).to_numpy()
        part = places[3 * eighth : 4 * eighth]
        cases: list[tuple[float, float]] = []
        for chosen, among in ((few, part), (10, places), (many, places)):
            cases.append(by_turns(table, partial(some_rows, rows, among, chosen, dice), rounds))
        scan = median(cpu(lakebed.open(table.uri).scan().to_arrow) for _ in range(rounds))
        (file,) = lakebed.open(table.uri).scan().files
        shown = [f"{old:.2f} > {new:.2f} ({new / old:.2f})" for old, new in cases]
        print(line.format(name, f"{file.size / 1e6:.1f}", *shown, f"{scan:.2f}"), flush=True)
        if size == GROUP:
            found += [
                Bar(
                    "upsert into one eighth of a file, CPU: row groups copied / every row encoded",
                    _part(cases[0]),
                    0.35,
                    False,
                ),
                Bar("upsert of random keys, CPU: row groups copied / every row encoded", _part(cases[2]), 1.0, False),
            ]
        shutil.rmtree(table.uri.removeprefix("file://"))
    file_writer.ROW_GROUP_ROWS = GROUP
    return found


def wide(folder: Path, count: int, rounds: int) -> list[Bar]:
    """2 of 100 columns of a twentieth of the rows, and of all."""
    dice = np.random.default_rng(2)
    ids = pa.array([f"key-{n:032d}" for n in dice.permutation(count).tolist()])
    words = pa.array([f"word-{n:05d}" for n in range(5_000)])
    makers: list[Callable[[], Any]] = [
        lambda: pa.array(dice.integers(0, 10**9, count)),
        lambda: pa.array(dice.random(count)),
        lambda: words.take(pa.array(dice.integers(0, len(words), count))),
    ]
    rows = pa.table({"id": ids, **{f"c{n:02}": makers[n % 3]() for n in range(99)}})
    table = table_of(folder, "wide", rows)

    def batch(turn: int, share: int) -> pa.Table:
        at = dice.choice(count, count // share, replace=False)
        numbers = pa.array(dice.integers(0, 10**9, len(at)))
        return pa.table({"id": ids.take(pa.array(at)), "c00": numbers, "c01": pa.array(dice.random(len(at)))})

    found: list[Bar] = []
    for share in (20, 1):
        cases = by_turns(table, lambda turn, s=share: batch(turn, s), rounds, **{"lakebed.write.partial": True})
        of = "all rows" if share == 1 else f"1 row in {share}"
        print(f"2 of 100 columns, {of}: {cases[0]:.2f} > {cases[1]:.2f} ({_part(cases):.2f})", flush=True)
        found.append(Bar(f"update of 2 of 100 columns of {of}, CPU: copied / encoded", _part(cases), 0.2, False))
    return found


def stitch(folder: Path, count: int, rounds: int) -> list[Bar]:
    """Eight files put together to one."""
    rows = rows_of(count, np.random.default_rng(3))
    parts = [table_of(folder, f"part{n}", rows.slice(n * (count // 8), count // 8)) for n in range(8)]
    storage = open_storage(str(folder))
    avro = avro_with_meta(arrow_to_avro(rows.schema, "t"))
    form = FileFormat(with_meta(rows.schema), avro, WriteSettings())

    def encoded() -> None:
        writer = FileWriter(storage, form, "002", "made", "plain", Task(), "CREATE", None)
        for part in parts:
            snapshot = open_snapshot(open_storage(part.uri))
            reader = SliceReader(snapshot.storage, snapshot.config)
            for file_slice in snapshot.file_slices():
                for one in reader.read(file_slice, dictionary=["_hoodie_commit_time", "city", "word"]):
                    writer.write(one, new_keys=None)
        writer.close()

    def copied() -> None:
        writer = FileWriter(storage, form, "002", "made", "copied", Task(), "CREATE", None, copies=True)
        for part in parts:
            snapshot = open_snapshot(open_storage(part.uri))
            for file_slice in snapshot.file_slices():
                put_file(writer, SliceReader(snapshot.storage, snapshot.config), form, file_slice)
        assert writer.rows == 8 * (count // 8)
        writer.close()

    (folder / "made").mkdir()
    spent = [(cpu(encoded), cpu(copied)) for _ in range(rounds)]
    old, new = (median(times) for times in zip(*spent, strict=True))
    print(f"8 files put together: {old:.2f} > {new:.3f} ({old / new:.1f} times)", flush=True)
    return [Bar("8 files put together, CPU: every row encoded / row groups copied", old / new, 10, True)]


def compaction(folder: Path, count: int, rounds: int) -> list[Bar]:
    """Logs of few rows: near one another, and one in a hundred."""
    dice = np.random.default_rng(4)
    rows = rows_of(count, dice)
    found: list[Bar] = []
    for name, among, chosen, bar in (
        ("2,000 rows of one eighth", range(count // 8), min(2_000, count // 8), 0.5),
        ("1 row in 100", range(count), count // 100, 1.0),
    ):
        table = table_of(folder, "mor", rows, ordering="ts", type="mor", properties={"hoodie.compact.inline": False})
        spent: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * rounds):
            copies = turn % 2 == 1
            lakebed.open(table.uri).upsert(some_rows(rows, np.array(among), chosen, dice, turn + 1))
            way = {} if copies else PLAIN
            spent[copies].append(cpu(lambda t=table, w=way: lakebed.open(t.uri).maintenance.compact(options=w)))
            clean(table)
        old, new = median(spent[False]), median(spent[True])
        print(f"compaction of logs of {name}: {old:.2f} > {new:.2f} ({new / old:.2f})", flush=True)
        found.append(Bar(f"compaction of logs of {name}, CPU: copied / encoded", new / old, bar, False))
        shutil.rmtree(table.uri.removeprefix("file://"))
    return found


def _part(pair: tuple[float, float]) -> float:
    return pair[1] / pair[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sizes", "wide", "stitch", "compaction"])
    given = parser.parse_args()
    runs = {"sizes": sizes, "wide": wide, "stitch": stitch, "compaction": compaction}
    bars: list[Bar] = []
    for name, run in runs.items():
        if given.only in (None, name):
            with tempfile.TemporaryDirectory() as temporary:
                count = given.rows // 4 if name == "wide" else given.rows
                bars += run(Path(temporary), count, given.rounds)
    for bar in bars:
        print(bar.line())
    raise SystemExit(any(bar.held is False for bar in bars))


if __name__ == "__main__":
    main()
