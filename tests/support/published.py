"""Readers of published tables, and random histories of tables that are published."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.publish.publication import PublishResult

Rows = list[dict[str, Any]]
Reader = Callable[[str, int | None], pa.Table]
CITIES = ("Oslo", "São Paulo", "a/b", "50% off", None)
FIELD_ID = b"PARQUET:field_id"
COLUMNS = ("extra", "note", "más")


def read_deltalake(uri: str, version: int | None = None) -> pa.Table:
    from deltalake import DeltaTable

    table = DeltaTable(uri, version=version)
    return pa.table(table.scan(columns=[field.name for field in table.schema().fields]))


def read_polars_delta(uri: str, version: int | None = None) -> pa.Table:
    import polars

    return polars.scan_delta(uri, version=version).collect().to_arrow()


def read_pyiceberg(uri: str, version: int | None = None) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(newest_metadata(uri)).scan(snapshot_id=version).to_arrow()


def read_polars_iceberg(uri: str, version: int | None = None) -> pa.Table:
    import polars

    return polars.scan_iceberg(newest_metadata(uri), snapshot_id=version).collect().to_arrow()


def read_by_field_ids(uri: str, version: int | None = None) -> pa.Table:
    """The rows as a reader shows them that knows no names: the ids of a file's columns say which column each one is."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(newest_metadata(uri))
    scan = table.scan(snapshot_id=version)
    shown = scan.projection().as_arrow()
    parts = [shown.empty_table()]
    for task in scan.plan_files():
        file = pq.read_table(task.file.file_path.removeprefix("file://"), partitioning=None)
        file = file.filter(pa.array([row not in masked(task) for row in range(file.num_rows)], pa.bool_()))
        places = {(f.metadata or {}).get(FIELD_ID): n for n, f in enumerate(file.schema)}
        columns = [
            file.column(places[field.metadata[FIELD_ID]]).cast(field.type)
            if field.metadata[FIELD_ID] in places
            else pa.nulls(file.num_rows, field.type)
            for field in shown
        ]
        parts.append(pa.Table.from_arrays(columns, shown.names))
    return pa.concat_tables([part.cast(shown) for part in parts])


def masked(task: Any) -> set[int]:
    """The rows of a task's file that its delete files name, by the ids of their columns."""
    rows = set[int]()
    for file in task.delete_files:
        deletes = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)
        path, position = (
            next(
                column
                for column, field in zip(deletes.columns, deletes.schema, strict=True)
                if field.metadata[FIELD_ID] == number
            )
            for number in (b"2147483546", b"2147483545")
        )
        rows |= {
            n for name, n in zip(path.to_pylist(), position.to_pylist(), strict=True) if name == task.file.file_path
        }
    return rows


def newest_metadata(uri: str) -> str:
    """The metadata file that the hint names."""
    number = (Path(uri) / "metadata" / "version-hint.text").read_text()
    return f"{uri}/metadata/v{number}.metadata.json"


READERS: dict[str, dict[str, Reader]] = {
    "delta": {"deltalake": read_deltalake, "polars": read_polars_delta},
    "iceberg": {"pyiceberg": read_pyiceberg, "polars": read_polars_iceberg, "ids": read_by_field_ids},
}


def sorted_rows(table: pa.Table) -> Rows:
    """The rows as dicts, in an order of their own; columns by name."""
    names = sorted(table.column_names)
    return sorted(table.select(names).to_pylist(), key=repr)


def expected_rows(table: lakebed.Table, as_of: str | None = None, *, fresh: bool = False) -> Rows:
    """The rows that a published list shows: of a merge-on-read table those of its base files, or with `fresh` all."""
    return sorted_rows(table.scan(as_of=as_of, query="snapshot" if fresh else "read_optimized").to_arrow())


def check_published(table: lakebed.Table, form: str, *, fresh: bool = False) -> None:
    """Every reader of the format gives the rows of the table."""
    expected = expected_rows(table, fresh=fresh)
    for name, read in READERS[form].items():
        assert sorted_rows(read(table.uri, None)) == expected, name


class PublishedHistory:
    """A table under random operations. `step` does one and returns its name; `versions` are the published versions
    with the rows that the table had then."""

    cities: tuple[str | None, ...] = CITIES

    def __init__(self, uri: str, seed: int, kind: str = "cow", index: str = "bucket") -> None:
        self.random = random.Random(seed)
        self.added: list[str] = []
        extra: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
        if index == "record":  # a row whose partition changes moves: a list has one value of it a file
            extra["properties"] = {"hoodie.record.index.update.partition.path": "true"}
        first = self._rows(6)
        self.table = lakebed.create(
            uri, first, key="id", partition_by="city", ordering="ts", type=kind, index=index, **extra
        )
        self.table.upsert(first)
        self.rescales = index == "bucket"
        self.versions: dict[int, tuple[str, Rows]] = {}

    def step(self) -> str:
        verbs = ["upsert"] * 4 + ["insert", "delete", "delete_where", "overwrite", "overwrite_table", "drop_partition"]
        verbs += ["evolve", "cluster", "rescale", "restore", "rollback", "clean", "compact", "comment"]
        verb = self.random.choice(verbs)
        getattr(self, f"_{verb}")()
        return verb

    def note(self, result: PublishResult, *, fresh: bool = False) -> None:
        """Remember the commit and the rows of the newest version."""
        self.versions[result.version] = result.instant, expected_rows(self.table, fresh=fresh)

    def readable_versions(self) -> dict[int, Rows]:
        """The versions whose commits the table itself shows as of then."""
        commits = {instant.time for instant in self.table.timeline}
        found = dict[int, Rows]()
        for version, (instant, rows) in self.versions.items():
            try:
                self.table.scan(as_of=instant).to_arrow()
            except lakebed.InvalidOption:  # cleaned
                continue
            if instant in commits:
                found[version] = rows
        return found

    def _rows(self, count: int) -> pa.Table:
        chosen = self.random
        ids = chosen.sample(range(40), count)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": pa.array([self.cities[n % len(self.cities)] for n in ids], pa.string()),
                "fare": pa.array([chosen.choice([1.5, -2.25, float("inf"), None]) for _ in ids], pa.float64()),
                "name": pa.array([chosen.choice(["", "x", "ÿ\U0001f600", None]) for _ in ids], pa.string()),
                "at": pa.array([chosen.randrange(10**16) for _ in ids], pa.timestamp("us", "UTC")),
                "day": pa.array([chosen.randrange(20_000) for _ in ids], pa.date32()),
                "cost": pa.array([Decimal(chosen.randrange(1000)) / 4 for _ in ids], pa.decimal128(20, 2)),
                "tags": pa.array([chosen.choice([["a", None], [], None]) for _ in ids], pa.list_(pa.string())),
                "ts": pa.array([chosen.randrange(9) for _ in ids], pa.int64()),
            }
        )
        for name in self.added:
            rows = rows.append_column(name, pa.array([chosen.choice([None, "new"]) for _ in ids], pa.string()))
        return rows

    def _upsert(self) -> None:
        self.table.upsert(self._rows(self.random.randrange(1, 8)))

    def _insert(self) -> None:
        options = {"hoodie.datasource.write.insert.drop.duplicates": True}
        self.table.insert(self._rows(3), options=options)

    def _delete(self) -> None:
        self.table.delete(self._rows(4).select(["id", "city"]))

    def _delete_where(self) -> None:
        self.table.delete(where=f"id % 7 = {self.random.randrange(7)}")

    def _overwrite(self) -> None:
        self.table.insert_overwrite(self._rows(3))

    def _overwrite_table(self) -> None:
        self.table.insert_overwrite(self._rows(9), scope="table")

    def _drop_partition(self) -> None:
        if self.table.partitions:
            self.table.delete_partitions([self.random.choice(self.table.partitions)])

    def _evolve(self) -> None:
        name = self.random.choice(COLUMNS)
        if name not in self.added:
            self.table.columns.add(name, "string")
            self.added.append(name)

    def _comment(self) -> None:
        self.table.columns.comment("name", f"of {self.random.randrange(9)}")

    def _cluster(self) -> None:
        if not self.rescales:
            self.table.maintenance.cluster(["id"], options={"hoodie.clustering.plan.strategy.small.file.limit": 10**9})

    def _compact(self) -> None:
        if self.table.properties["hoodie.table.type"] == "MERGE_ON_READ":
            self.table.maintenance.compact()

    def _rescale(self) -> None:
        if self.rescales and len(self.table.timeline):
            self.table.maintenance.rescale(self.random.choice([1, 2, 4]))

    def _restore(self) -> None:
        commits = [i.time for i in self.table.timeline if i.is_completed and i.action.value.endswith("commit")]
        if len(commits) > 3:
            saved = self.table.savepoints.create()
            self._upsert()
            self.table.restore(saved)
            self.table.savepoints.delete(saved.instant)

    def _rollback(self) -> None:
        self._upsert()
        with contextlib.suppress(lakebed.UnsupportedFeature):  # the metadata table was compacted since
            self.table.rollback(self.table.timeline.last.time)

    def _clean(self) -> None:
        self.table.maintenance.clean(options={"hoodie.clean.commits.retained": self.random.choice([1, 2, 5])})


def quiet() -> Iterator[None]:
    """Warnings of other readers' libraries are not failures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
