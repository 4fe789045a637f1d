"""Random histories of merge-on-read tables whose lists show the rows of log files: other readers give every row of a
scan after each operation, and the rows of then in each version. So do clients of a catalog server, which publishes a
table when it is asked for it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.catalog.warehouses import FolderNames
from lakebed.catalog_server.server import CatalogServer
from lakebed.catalog_server.tables import ServedTables
from support.inspected import running
from support.published import READERS, PublishedHistory, check_published, quiet, sorted_rows
from support.sampling import so_many, whole

HISTORIES, SMALL, SERVED = 200, 20, 1
STEPS = 6
quiet_readers = pytest.fixture(autouse=True)(quiet)
INDEXES = ("bucket", "simple", "global_simple", "record")


class FreshHistory(PublishedHistory):
    """As `PublishedHistory`, with bulk inserts, rows that move to other partitions, and columns that change."""

    def step(self) -> str:
        if self.random.random() < 0.75:
            return super().step()
        verb = self.random.choice(["bulk_insert", "move", "rename", "widen", "late"])
        getattr(self, f"_{verb}")()
        return verb

    def _rows(self, count: int) -> pa.Table:
        rows = super()._rows(count)
        if not hasattr(self, "table"):  # the first rows: a column that is widened later
            return rows.append_column("n", pa.array(range(count), pa.int32()))
        kind = self.table.schema.field("n").type
        return rows.append_column("n", pa.array([self.random.randrange(99) for _ in range(count)], kind))

    def _overwrite(self) -> None:
        with contextlib.suppress(lakebed.InvalidRecord):  # keys that moved to partitions which are not overwritten
            super()._overwrite()

    def _bulk_insert(self) -> None:
        fresh = self._rows(3)
        ids = pa.array([1000 + self.random.randrange(10**6) for _ in range(fresh.num_rows)], pa.int64())
        self.table.bulk_insert(fresh.set_column(0, "id", ids))

    def _move(self) -> None:
        moved = self._rows(4)
        cities = pa.array([self.random.choice(self.cities) for _ in range(moved.num_rows)], pa.string())
        self.table.upsert(moved.set_column(1, "city", cities))

    def _late(self) -> None:
        late = self._rows(3)
        self.table.upsert(late.set_column(late.schema.names.index("ts"), "ts", pa.array([-1] * 3, pa.int64())))

    def _rename(self) -> None:
        if self.added:
            old = self.added.pop()
            self.table.columns.rename(old, f"{old}_")
            self.added.append(f"{old}_")
            self._rewrite()

    def _widen(self) -> None:
        if self.table.schema.field("n").type == pa.int32():
            self.table.columns.widen("n", "bigint")
            self._rewrite()

    def _rewrite(self) -> None:
        """Readers of lists go by the names and types in base files."""
        self.table.maintenance.compact()
        if not self.rescales:
            options = {"hoodie.clustering.plan.strategy.small.file.limit": 10**9}
            self.table.maintenance.cluster(["id"], options=options)


class PlainPaths(FreshHistory):
    """As `FreshHistory`, with partition paths whose rows a Delta log can mask."""

    cities = ("Oslo", "a/b", "c-d_e.f~g", None)


def run(uri: str, seed: int, form: Literal["delta", "iceberg"]) -> int:
    """Run one history; returns how often its list was compared with the table."""
    index, reader = INDEXES[seed % len(INDEXES)], {"delta": "deltalake", "iceberg": "pyiceberg"}[form]
    history = (PlainPaths if form == "delta" else FreshHistory)(uri, seed, "mor", index)
    done: list[str] = []
    compared = 0
    try:
        for _ in range(STEPS):
            done.append(history.step())
            if history.random.random() < 0.3:  # the list lags
                continue
            try:
                history.note(history.table.catalogs.publish(form, fresh=True), fresh=True)
            except lakebed.UnsupportedFeature as refused:  # older files, which no compaction has written again
                if "rewrite older files" not in refused.hint.lower():
                    raise
                continue
            check_published(history.table, form, fresh=True)
            compared += 1
        for version, rows in history.readable_versions().items():
            assert sorted_rows(READERS[form][reader](uri, version)) == rows, version
    except BaseException as error:
        error.add_note(f"{form}, seed {seed}, {index}: {done}")
        raise
    return compared


@pytest.mark.rest
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_readers_of_fresh_lists_give_every_row_of_a_scan_after_each_operation(
    form: Literal["delta", "iceberg"], tmp_path: Path
) -> None:
    histories = HISTORIES if whole("LAKEBED_HISTORIES") else so_many(50, SMALL)
    compared = [run(str(tmp_path / f"t{seed}"), seed, form) for seed in range(histories)]
    assert sum(compared) > 2 * histories


def run_served(server: CatalogServer, uri: str, name: str, seed: int) -> int:
    """Run one history whose table a client of the server reads after each operation; returns how often it did."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import BadRequestError

    index = INDEXES[seed % len(INDEXES)]
    history = FreshHistory(uri, seed, "mor", index)
    history.table.configure({"lakebed.publish.fresh": True})
    catalog = load_catalog("served", type="rest", uri=server.url)
    done: list[str] = []
    compared, table = 0, catalog.load_table(name)
    try:
        for _ in range(STEPS):
            done.append(history.step())
            if history.random.random() < 0.3:  # no client asks
                continue
            try:
                table = catalog.load_table(name)
            except BadRequestError as refused:  # older files, which no compaction has written again
                if "rewrite older files" not in str(refused).lower():
                    raise
                continue
            expected = sorted_rows(history.table.scan().to_arrow())
            assert sorted_rows(table.scan().to_arrow()) == expected
            snapshot = table.current_snapshot()
            assert snapshot is not None
            assert snapshot.summary is not None
            history.versions[snapshot.snapshot_id] = snapshot.summary.additional_properties["hudi.instant"], expected
            compared += 1
        for version, rows in history.readable_versions().items():
            assert sorted_rows(table.scan(snapshot_id=version).to_arrow()) == rows, version
    except BaseException as error:
        error.add_note(f"served, seed {seed}, {index}: {done}")
        raise
    return compared


def test_clients_of_a_server_give_every_row_of_a_scan_after_each_operation(tmp_path: Path) -> None:
    histories = HISTORIES if whole("LAKEBED_HISTORIES") else so_many(50, SERVED)
    tables = ServedTables(FolderNames(str(tmp_path)), publishes=True, vends=False)
    compared = 0
    with running(CatalogServer(tables)) as server:
        for seed in range(1_000, 1_000 + histories):
            compared += run_served(server, str(tmp_path / "h" / f"t{seed}"), f"h.t{seed}", seed)
    assert compared > 2 * histories
