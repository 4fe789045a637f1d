"""No filter with a function loses a row by an expression index: every file is looked into, for many random filters."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.filters.sql import parse_filter
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.sampling import HISTORIES, todays

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("name", pa.string()),
        ("secs", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
INDEXES: tuple[tuple[str, str, str, dict[str, Any], str], ...] = (
    ("up", "name", "upper", {}, "column_stats"),
    ("low", "name", "lower", {"numentries": 50, "fpp": 0.01}, "bloom_filters"),
    ("trimmed", "name", "trim", {}, "bloom_filters"),
    ("len", "name", "length", {}, "column_stats"),
    ("sub", "name", "substring", {"pos": 1, "len": 2}, "column_stats"),
    ("fmt", "at", "date_format", {"format": "yyyy-MM-dd HH"}, "column_stats"),
    ("fmt_filter", "at", "date_format", {"format": "yyyy-MM"}, "bloom_filters"),
    ("y", "at", "year", {}, "column_stats"),
    ("h", "at", "hour", {}, "bloom_filters"),
    ("d", "at", "to_date", {}, "column_stats"),
    ("unix", "secs", "from_unixtime", {"format": "yyyy-MM-dd"}, "column_stats"),
    ("secs_of", "at", "unix_timestamp", {}, "column_stats"),
    ("later", "day", "date_sub", {"days": 3}, "column_stats"),
    ("m", "day", "month", {}, "column_stats"),
)
NAMES = ("ada", "Bob ", " bob", "ÉMILE", "żółw", "straße", "", "Zoë", "日本", "ΟΔΟΣ")
ZONES = ("UTC", "Asia/Tokyo", "America/New_York")
START = datetime(2019, 12, 28, tzinfo=UTC)


def rows_of_file(chance: random.Random, part: int) -> list[dict[str, Any]]:
    """Rows of one file: near each other, with nulls; one file has nulls alone."""
    near = START + timedelta(days=part * 2)

    def maybe(value: Any) -> Any:
        return None if part == 3 or chance.random() < 0.3 else value

    return [
        {
            "id": 100 * part + n,
            "part": f"p{part}",
            "name": maybe(chance.choice(NAMES[part % 4 : part % 4 + 4])),
            "secs": maybe(int(near.timestamp()) + chance.randrange(-90000, 90000)),
            "day": maybe(near.date() + timedelta(days=chance.randrange(3))),
            "at": maybe(near + timedelta(seconds=chance.randrange(-90000, 90000))),
        }
        for n in range(6)
    ]


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    """Half of the files are older than the indexes."""
    name = f"expressions-{uuid.uuid4().hex}"
    chance = random.Random(5)
    table = lakebed.create(
        f"memory://{name}/t", SCHEMA, key="id", partition_by="part", merge="commit_time", index="simple"
    )
    batches = [pa.Table.from_pylist(rows_of_file(chance, part), SCHEMA) for part in range(10)]
    table.upsert(pa.concat_tables(batches[:5]))
    for index, column, function, options, kind in INDEXES:
        table.indexes.create(index, column=column, function=function, function_options=options, kind=kind)
    table.upsert(pa.concat_tables(batches[5:]))
    table.upsert(batches[7].slice(0, 2).set_column(2, "name", pa.array(["new", None], pa.string())))
    yield lakebed.open(table.uri)
    MemoryStorage.drop(name)


def leaf(chance: random.Random) -> str:
    at = START + timedelta(seconds=chance.randrange(-(10**5), 20 * 86400))
    day: date = at.date()
    name = chance.choice(NAMES).replace("'", "")
    compared = chance.choice(("=", "=", "=", "<", ">=", "!=", "<=>"))
    left, right = chance.choice(
        (
            ("upper(name)", f"'{name.upper()}'"),
            ("lower(name)", f"'{name.lower()}'"),
            ("trim(name)", f"'{name.strip()}'"),
            ("length(name)", str(chance.randrange(8))),
            ("substring(name, 1, 2)", f"'{name[:2]}'"),
            ("date_format(at, 'yyyy-MM-dd HH')", f"'{at:%Y-%m-%d %H}'"),
            ("date_format(at, 'yyyy-MM')", f"'{at:%Y-%m}'"),
            ("year(at)", str(chance.choice((2018, 2019, 2020)))),
            ("hour(at)", str(chance.randrange(24))),
            ("to_date(at)", f"date'{day}'"),
            ("from_unixtime(secs, 'yyyy-MM-dd')", f"'{day}'"),
            ("unix_timestamp(at)", str(int(at.timestamp()))),
            ("date_sub(day, 3)", f"date'{day - timedelta(days=3)}'"),
            ("date_add(day, -3)", f"date'{day - timedelta(days=3)}'"),
            ("month(day)", str(chance.choice((1, 12)))),
        )
    )
    match chance.randrange(6):
        case 0:
            return f"{left} IS {chance.choice(('', 'NOT '))}NULL"
        case 1:
            return f"{left} IN ({right}, {right})"
        case _:
            return f"{left} {compared} {right}"


def random_filter(chance: random.Random, depth: int = 2) -> str:
    if depth and chance.random() < 0.4:
        word = chance.choice((" AND ", " OR "))
        return "(" + word.join(random_filter(chance, depth - 1) for _ in range(2)) + ")"
    if depth and chance.random() < 0.1:
        return f"NOT ({random_filter(chance, depth - 1)})"
    return leaf(chance)


@pytest.mark.parametrize("zone", ZONES)
def test_random_filters_lose_no_row(table: Table, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakebed.read.scan import Scan

    monkeypatch.setattr(Scan, "zone", lambda _: zone)
    chance = random.Random(zone)
    snapshot = open_snapshot(open_storage(table.uri))
    every = Scan(snapshot, columns=[*SCHEMA.names, "_hoodie_file_name"]).to_arrow()
    files = len(every["_hoodie_file_name"].unique())
    pruned = 0
    texts = todays([random_filter(chance) for _ in range(150)], 3, HISTORIES)
    for text in texts:
        scan = Scan(snapshot, columns=["id"], where=text)
        wanted = every.filter(parse_filter(text, SCHEMA, zone=zone).to_arrow())
        names = set(wanted["_hoodie_file_name"].to_pylist())
        assert names <= {file.name for file in scan.files}, text
        assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(wanted["id"].to_pylist()), text
        pruned += files - len(scan.files)
    assert pruned > len(texts) * 2 // 3


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("upper(name) = 'NEW'", "up"),
        ("lower(name) = 'nobody'", "low"),
        ("trim(name) = 'nobody'", "trimmed"),
        ("length(name) > 50", "len"),
        ("substring(name, 1, 2) = 'zz'", "sub"),
        ("date_format(at, 'yyyy-MM-dd HH') = '2021-01-01 00'", "fmt"),
        ("date_format(at, 'yyyy-MM') = '2021-01'", "fmt_filter"),
        ("year(at) = 2022", "y"),
        ("to_date(at) = date'2021-01-01'", "d"),
        ("from_unixtime(secs, 'yyyy-MM-dd') = '2021-01-01'", "unix"),
        ("unix_timestamp(at) = 0", "secs_of"),
        ("date_sub(day, 3) = date'2021-01-01'", "later"),
        ("month(day) = 6", "m"),
    ],
)
def test_explain_names_the_expression_index(table: Table, text: str, index: str) -> None:
    scan = table.scan(where=text)
    assert f"by expression index {index}" in scan.explain()
    assert len(scan.files) < 10


def test_another_function_or_zone_is_not_taken_for_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakebed.read.scan import Scan

    for text in (
        "substring(name, 2, 2) = 'zz'",
        "date_format(at, 'yyyy') = '1999'",
        "date_sub(day, 4) = date'2021-01-01'",
    ):
        assert "expression index" not in table.scan(where=text).explain()
    monkeypatch.setattr(Scan, "zone", lambda _: "Asia/Tokyo")
    snapshot = open_snapshot(open_storage(table.uri))
    text = "date_format(at, 'yyyy-MM-dd HH') = '2021-01-01 00'"
    assert len(Scan(snapshot, where=text).files) == 9  # all but the one of nulls
    assert len(Scan(snapshot, where="year(at) = 2025").files) < 10  # no zone is a year away


def test_as_many_nulls_as_values_are_not_all_nulls(tmp_path: Any) -> None:
    """The values of an expression index are those that are not null, as real Hudi counts them."""
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", partition_by="part", merge="commit_time")
    given = [
        {"id": n, "part": f"p{n % 2}", "name": None, "secs": None, "day": None, "at": START if n < 2 else None}
        for n in range(4)
    ]
    table.upsert(pa.Table.from_pylist(given, SCHEMA))
    table.indexes.create("y", column="at", function="year")
    assert table.scan(where="year(at) = 2019").to_arrow().num_rows == 2
