"""Random histories of tables with vectors against a dict: every row has its vector, and searches are those of NumPy."""

from __future__ import annotations

import itertools
from typing import Literal

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakebed
from property.model import DictTable, Row
from support.sampling import so_many

DIMENSION = 3
_numbers = itertools.count()
elements = {
    "float": st.floats(-100, 100, width=32),
    "double": st.floats(-1e200, 1e200),
    "int8": st.integers(-128, 127),
}
ids = st.integers(0, 20)
cities = st.sampled_from(["oslo", "rome"])


class VectorHistory(RuleBasedStateMachine):
    """One table with a column of vectors of any element type; each rule is one write."""

    @initialize(
        kind=st.sampled_from(["cow", "mor"]),
        element=st.sampled_from(["float", "double", "int8"]),
        index=st.sampled_from(["bucket", "simple", "record"]),
        logs=st.sampled_from(["avro", "parquet"]),
        sort=st.sampled_from(["key", "none"]),
        event_time=st.booleans(),
    )
    def create(
        self,
        kind: Literal["cow", "mor"],
        element: Literal["float", "double", "int8"],
        index: str,
        logs: str,
        sort: str,
        event_time: bool,
    ) -> None:
        self.kind = lakebed.vector(DIMENSION, element)
        self.element = element
        columns = [("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("emb", self.kind)]
        self.schema = pa.schema(columns)
        self.table = lakebed.create(
            f"memory://vector-histories/t{next(_numbers)}",
            self.schema,
            key="id",
            ordering="ts",
            partition_by="city",
            type=kind,
            index=index,
            merge="event_time" if event_time else "commit_time",
            buckets=2 if index == "bucket" else None,
            properties={
                "lakebed.sort": sort,
                "hoodie.compact.inline": False,
                "hoodie.logfile.data.block.format": logs,
            },
        )
        self.merges = kind == "mor"
        self.model = DictTable(event_time, is_global=index == "record")

    def _rows(self, data: st.DataObject, event_time: bool = True) -> list[Row]:
        number = elements[self.element]
        row = st.fixed_dictionaries(
            {
                "id": ids,
                "city": st.just("oslo") if self.model.is_global else cities,
                "v": st.integers(0, 99),
                "ts": st.integers(0, 9) if event_time else st.just(9),
                "emb": st.none() | st.lists(number, min_size=DIMENSION, max_size=DIMENSION),
            }
        )
        rows = data.draw(st.lists(row, min_size=1, max_size=12))
        return list({(r["id"], r["city"]): r for r in rows}.values())

    @rule(data=st.data(), as_lists=st.booleans())
    def upsert(self, data: st.DataObject, as_lists: bool) -> None:
        rows = self._rows(data)
        self.table.upsert(rows if as_lists else pa.Table.from_pylist(rows, self.schema))
        self.model.upsert(rows)

    @rule(data=st.data())
    def other_columns(self, data: st.DataObject) -> None:
        """A partial update of another column leaves the vectors as they are."""
        known = [r for r in self.model.rows.values() if data.draw(st.booleans())][:5]
        if known:
            parts = [{"id": r["id"], "city": r["city"], "ts": 9, "v": 1000 + r["v"]} for r in known]
            self.table.upsert(pa.Table.from_pylist(parts), partial=True)
            self.model.upsert([{**r, "ts": 9, "v": 1000 + r["v"]} for r in known])

    @rule(low=st.integers(0, 99))
    def delete_where(self, low: int) -> None:
        self.table.delete(where=f"v >= {low} AND v < {low + 20}")
        self.model.rows = {p: r for p, r in self.model.rows.items() if not low <= r["v"] < low + 20}

    @rule()
    def cluster(self) -> None:
        self.table.maintenance.cluster()

    @precondition(lambda self: self.merges)
    @rule()
    def compact(self) -> None:
        self.table.maintenance.compact()

    @invariant()
    def rows_have_their_vectors(self) -> None:
        rows = self.table.scan().to_arrow()
        assert rows.schema.field("emb").type == self.kind
        stored = sorted(((r["city"], r["id"], r["v"], r["emb"]) for r in rows.to_pylist()), key=lambda r: r[:2])
        expected = ((*place, row["v"], row["emb"]) for place, row in sorted(self.model.rows.items()))
        assert stored == list(expected)

    @invariant()
    def the_nearest_are_those_of_numpy(self) -> None:
        matrix = np.array([r["emb"] for r in self.model.rows.values() if r["emb"] is not None], np.float64)
        query = [1.0, -2.0, 0.5]
        found = self.table.search(query, 4, metric="dot_product").to_arrow()["_hudi_distance"].to_pylist()
        expected = np.sort(-(matrix @ query))[:4].tolist() if len(matrix) else []
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


TestVectorHistories = VectorHistory.TestCase
TestVectorHistories.settings = settings(
    max_examples=so_many(60, small=5), stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
