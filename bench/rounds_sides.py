"""The calls of one side of `rounds.py`, in a process of their own.

python bench/rounds_sides.py SIDE URL TASK FOLDER     TASK: "long", or one task of a process that has just begun

A table of 20,000 rows in four partition paths (Lance has none); upserts of ten rows of one path.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

ROWS, COMMITS = 20_000, 6


def rows(first: int, count: int, ts: int, step: int = 1) -> pa.Table:
    numbers = range(first, first + count * step, step)
    columns = {"id": [f"k{n:08}" for n in numbers], "ts": pa.array([ts] * count, pa.int64())}
    return pa.table({**columns, "part": [f"p{n % 4}" for n in numbers], "v": [float(n) for n in numbers]})


class Side:
    """The tasks; each opens the table where it is not open."""

    package: ClassVar[str]
    missing: ClassVar[dict[str, str]] = {}
    table: Any = None

    def __init__(self, url: str, folder: str) -> None:
        self.url, self.folder, self.ts = url, Path(folder), 1

    def small(self) -> pa.Table:
        """Ten rows of one partition path, later than those before."""
        self.ts += 1
        return rows(0, 10, int(time.time() * 1000) + self.ts, 4)


class Lakebed(Side):
    package = "lakebed"

    def _open(self) -> Any:
        import lakebed

        if self.table is None:
            self.table = lakebed.open("s3://lake/lakebed", storage_options=self.options)
        return self.table

    @property
    def options(self) -> dict[str, str]:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region": "us-east-1"}
        return {"endpoint_url": self.url, **keys}

    def make(self) -> None:
        import lakebed

        words: dict[str, Any] = {"type": "mor", "index": "bucket", "buckets": 1, "partition_by": "part"}
        self.table = lakebed.create(
            *("s3://lake/lakebed", rows(0, 5, 1)),
            key="id",
            ordering="ts",
            storage_options=self.options,
            properties={"hoodie.compact.inline": False, "hoodie.clean.automatic": False},
            **words,
        )
        self.since = self.table.bulk_insert(rows(0, ROWS, 1)).checkpoint

    def count(self) -> int:
        return self._open().count()

    def partition(self) -> int:
        return self._open().scan(where="part = 'p1'").to_arrow().num_rows

    def lookup(self) -> int:
        return self._open().get(pa.table({"id": ["k00000004"], "part": ["p0"]})).num_rows

    def upsert(self) -> None:
        self._open().upsert(self.small())

    def changes(self) -> int:
        return self._open().changes(self.since).to_arrow().num_rows

    def delete(self) -> None:
        self._open().delete(pa.table({"id": ["k00000008"], "part": ["p0"]}))


class Delta(Side):
    package = "deltalake"
    missing: ClassVar[dict[str, str]] = {"changes": "it wants a change feed, which every write then pays for"}

    def _open(self) -> Any:
        from deltalake import DeltaTable

        if self.table is None:
            self.table = DeltaTable("s3://lake/delta", storage_options=self.options)
        else:
            self.table.update_incremental()
        return self.table

    @property
    def options(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}

    def make(self) -> None:
        from deltalake import write_deltalake

        write_deltalake("s3://lake/delta", rows(0, ROWS, 1), storage_options=self.options, partition_by=["part"])

    def _read(self, condition: str) -> int:
        return pa.table(self._open().scan(predicate=condition)).num_rows

    def count(self) -> int:
        return self._open().count()

    def partition(self) -> int:
        return self._read("part = 'p1'")

    def lookup(self) -> int:
        return self._read("id = 'k00000004' AND part = 'p0'")

    def upsert(self) -> None:
        table = self._open() if self.table is None else self.table
        same = "t.id = s.id AND t.part = s.part"
        merge = table.merge(self.small(), same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self) -> None:
        self.table.delete("id = 'k00000008' AND part = 'p0'")


class Iceberg(Side):
    package = "pyiceberg"
    missing: ClassVar[dict[str, str]] = {"changes": "pyiceberg does not read changes"}

    @property
    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        keys = {"s3.access-key-id": "testing", "s3.secret-access-key": "testing", "s3.region": "us-east-1"}
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": "s3://lake/iceberg"}
        return SqlCatalog("rounds", **where, **{"s3.endpoint": self.url}, **keys)

    def _open(self) -> Any:
        if self.table is None:
            self.table = self._catalog.load_table("b.t")
        else:
            self.table.refresh()
        return self.table

    def make(self) -> None:
        from pyiceberg.transforms import IdentityTransform

        catalog = self._catalog
        catalog.create_namespace("b")
        table = catalog.create_table("b.t", schema=rows(0, 1, 1).schema)
        with table.update_spec() as spec:
            spec.add_field("part", IdentityTransform(), "part")
        self.table = catalog.load_table("b.t")
        self.table.append(rows(0, ROWS, 1))

    def count(self) -> int:
        return self._open().scan().count()

    def partition(self) -> int:
        return self._open().scan(row_filter="part == 'p1'").to_arrow().num_rows

    def lookup(self) -> int:
        return self._open().scan(row_filter="id == 'k00000004' and part == 'p0'").to_arrow().num_rows

    def upsert(self) -> None:
        table = self._open() if self.table is None else self.table
        table.upsert(self.small(), join_cols=["id"])

    def delete(self) -> None:
        self.table.delete("id == 'k00000008' and part == 'p0'")


class Lance(Side):
    package = "pylance"
    missing: ClassVar[dict[str, str]] = {"changes": "it wants stable row ids, which the table was not made with"}

    @property
    def options(self) -> dict[str, str]:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "aws_region": "us-east-1"}
        return {"aws_endpoint": self.url, "allow_http": "true", **keys}

    def _open(self) -> Any:
        import lance

        if self.table is None:
            self.table = lance.dataset("s3://lake/lance", storage_options=self.options)
        else:
            self.table.checkout_latest()
        return self.table

    def make(self) -> None:
        import lance

        self.table = lance.write_dataset(rows(0, ROWS, 1), "s3://lake/lance", storage_options=self.options)
        self.table.create_scalar_index("id", "BTREE")

    def count(self) -> int:
        return self._open().count_rows()

    def partition(self) -> int:
        return self._open().to_table(filter="part = 'p1'").num_rows

    def lookup(self) -> int:
        return self._open().to_table(filter="id = 'k00000004'").num_rows

    def upsert(self) -> None:
        table = self._open() if self.table is None else self.table
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(self.small())

    def delete(self) -> None:
        self.table.delete("id = 'k00000008'")


_SIDES: dict[str, type[Side]] = {"lakebed": Lakebed, "deltalake": Delta, "pyiceberg": Iceberg, "lance": Lance}
_RESULTS = {"count": ROWS, "partition": ROWS // 4, "lookup": 1}


def called(url: str, name: str, call: Callable[[], Any], after: float) -> None:
    """Run a call between marks in the log of the store, and wait for what it does in the background."""

    def mark(text: str) -> None:
        urllib.request.urlopen(f"{url}/__mark?{text}", timeout=60).read()

    mark(f"begin={name}")
    result = call()
    mark("returned")
    task = name.partition("_")[2]
    assert result is None or task not in _RESULTS or result == _RESULTS[task], (name, result)
    time.sleep(after)
    mark("end")


def main() -> None:
    name, url, task, folder, seconds = sys.argv[1:]
    after = float(seconds)
    side: Any = _SIDES[name](url, folder)
    if task != "long":
        called(url, f"fresh_{task}", getattr(side, task), after)
        return
    print("version", side.package, version(side.package))
    for missing, reason in side.missing.items():
        print("missing", missing, reason)
    side.make()
    for _ in range(COMMITS):
        called(url, "long_commit", side.upsert, after)
    for _ in range(3):
        called(url, "long_count", side.count, after)
        called(url, "long_commit", side.upsert, after)
        if "changes" not in side.missing:
            called(url, "long_changes", side.changes, after)
            called(url, "long_commit", side.upsert, after)
    called(url, "long_delete", side.delete, after)
    side.upsert()


if __name__ == "__main__":
    main()
