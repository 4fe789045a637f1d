"""Rows as an index places them, under merge rules of the test's choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakebed.engine.base import Engine, Rows
from lakebed.index.base import Index, Tagged
from lakebed.merge.rules import MergeRules
from lakebed.slices.snapshot import Snapshot


def tagged_rows(index: Index, rows: Any, snapshot: Snapshot, engine: Engine, rules: MergeRules | None = None) -> Rows:
    """The rows with their place, as if the table had these rules."""
    answer = index.place(engine.rows(rows), snapshot if rules is None else with_rules(snapshot, rules), engine)
    assert isinstance(answer, Tagged)
    return answer.rows


def with_rules(snapshot: Snapshot, rules: MergeRules) -> Snapshot:
    """The same view of a table of version 9 that merges by these rules."""
    mode = "EVENT_TIME_ORDERING" if rules.ordering else "COMMIT_TIME_ORDERING"
    named = {"hoodie.record.merge.mode": mode, "hoodie.table.ordering.fields": ",".join(rules.ordering)}
    if rules.delete_field:
        named["hoodie.record.merge.property.hoodie.payload.delete.field"] = rules.delete_field
        named["hoodie.record.merge.property.hoodie.payload.delete.marker"] = rules.delete_marker or ""
    return replace(snapshot, config=replace(snapshot.config, properties={**snapshot.config.properties, **named}))
