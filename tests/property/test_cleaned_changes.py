"""Change data of ranges whose files were cleaned: the error names a checkpoint from which all changes can be read."""

from __future__ import annotations

import random
import uuid
from itertools import pairwise
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.storage.memory import MemoryStorage
from support.sampling import so_many, today
from support.write_tables import rows

QUIET: dict[str, Any] = {
    "lakebed.write.tasks": 1,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
FIRST, COUNT = today() * 100, so_many(8, small=2)


def _history(uri: str, dice: random.Random) -> list[str]:
    """A merge-on-read table with a change log, written, compacted, clustered, cleaned and archived; its checkpoints."""
    index = dice.choice(["bucket", "simple", "record"])
    properties = {"hoodie.table.cdc.enabled": True}
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=dice.choice([9, 8, 6]),
        properties=properties,
    )
    checkpoints = ["000"]
    for n in range(12):
        keys = sorted({dice.randrange(8) for _ in range(3)})
        if n and dice.random() < 0.15:
            result = table.delete(keys[:1], options=QUIET)
        else:
            result = table.upsert(rows(*((key, f"c{key % 2}", f"v{n}", n) for key in keys)), options=QUIET)
        checkpoints.append(result.checkpoint)
        if dice.random() < 0.3:
            table.maintenance.compact(options=QUIET)
        if dice.random() < 0.12:
            table.maintenance.cluster(["v"], options=QUIET)
        if dice.random() < 0.3:
            table.maintenance.clean(options=QUIET | {"hoodie.clean.commits.retained": dice.choice([1, 2, 3])})
        if dice.random() < 0.2:
            kept = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
            table.maintenance.archive(options=QUIET | kept)
    return checkpoints


def _refused(table: lakebed.Table, start: str, end: str) -> str | None:
    """The checkpoint that the error for a range names; None where the range is read."""
    try:
        table.cdc(start, end).to_arrow()
    except InvalidOption as error:
        return str(error.context["checkpoint"])
    return None


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_each_range_is_read_or_names_a_checkpoint_that_is(seed: int) -> None:
    name = f"cleaned-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    checkpoints = _history(uri, random.Random(seed))
    table = lakebed.open(uri)
    refused = 0
    for start, end in pairwise(checkpoints):
        for until in (end, checkpoints[-1]):
            named = _refused(table, start, until)
            if named is not None:
                refused += 1
                table.cdc(named).to_arrow()
    MemoryStorage.drop(name)
    assert refused < 2 * (len(checkpoints) - 1)


def _replacing_history(uri: str, dice: random.Random) -> tuple[list[str], list[dict[int, str]]]:
    """A table that is overwritten, saved and cleaned all the time: its checkpoints, and its rows as of each."""
    version, kind = dice.choice([9, 8, 6]), dice.choice(["cow", "mor"])
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,  # pyright: ignore[reportArgumentType]
        index=(index := dice.choice(["bucket", "simple"])),
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True, "hoodie.metadata.enable": dice.random() < 0.5},
    )
    checkpoints, states = ["000"], [dict[int, str]()]
    for n in range(16):
        state, verb, city = dict(states[-1]), dice.choice(["upsert"] * 5 + ["overwrite"] * 2 + ["drop"]), n % 2
        keys = [2 * key + city for key in sorted({dice.randrange(5) for _ in range(3)})]
        of_city = [key for key in state if key % 2 == city]
        given = rows(*((key, f"c{key % 2}", f"v{n}", n) for key in keys))
        if verb == "drop" and of_city:
            result = table.delete_partitions([f"c{city}"], options=QUIET)
            keys = []
        elif verb == "overwrite":
            result = table.insert_overwrite(given, options=QUIET)
        else:
            result, of_city = table.upsert(given, options=QUIET), []
        for key in of_city:
            del state[key]
        states.append(state | dict.fromkeys(keys, f"v{n}"))
        checkpoints.append(result.checkpoint)
        if kind == "mor" and dice.random() < 0.2:
            table.maintenance.compact(options=QUIET | {"hoodie.compact.inline.max.delta.commits": 1})
        if dice.random() < 0.2:
            table.savepoints.create()
        if dice.random() < 0.3:
            table.maintenance.clean(options=QUIET | {"hoodie.clean.commits.retained": dice.choice([1, 2, 3])})
        if dice.random() < 0.2:
            for savepoint in table.savepoints.list():
                table.savepoints.delete(savepoint.instant)
        if dice.random() < 0.2:
            limits = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
            table.maintenance.archive(options=QUIET | limits)
    return checkpoints, states


def _images(table: lakebed.Table, start: str, end: str) -> tuple[dict[int, str], dict[int, str]]:
    """The rows by key before and after the changes of one commit."""
    before, after = dict[int, str](), dict[int, str]()
    for row in table.cdc(start, end).to_arrow().to_pylist():
        for side, images in ((row["before"], before), (row["after"], after)):
            if side is not None:
                assert side["id"] not in images
                images[side["id"]] = side["v"]
    return before, after


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT * 3))
def test_change_data_beside_cleaning_and_savepoints_has_the_rows_of_the_commit_before(seed: int) -> None:
    name = f"replaced-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    checkpoints, states = _replacing_history(uri, random.Random(seed))
    table, refused = lakebed.open(uri), 0
    for at, (start, end) in enumerate(pairwise(checkpoints)):
        try:
            before, after = _images(table, start, end)
        except InvalidOption:
            refused += 1
            continue
        earlier, later = states[at], states[at + 1]
        assert before.items() <= earlier.items(), (at, earlier, later)
        assert {key: v for key, v in earlier.items() if key not in before} | after == later, (at, before, after)
    MemoryStorage.drop(name)
    assert refused < len(states) - 1
