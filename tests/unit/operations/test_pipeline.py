"""What every verb of a write goes through: it is admitted, has its action, and reports changes of columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import CommitConflict, InvalidOption
from lakebed.model import Action
from lakebed.operations.pipeline import RowsVerb, action_of, admit, refuse_clustered, rows_of_groups
from lakebed.operations.write import RowMatch
from lakebed.storage import open_storage
from support.tables import context_of, new_table
from support.write_tables import rows

NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
STORED = rows((1, "oslo", "a", 1), (2, "oslo", "b", 1), (3, "rome", "c", 1))


def test_a_commit_of_a_merge_on_read_table_is_a_delta_commit_and_a_replacement_is_one_in_both() -> None:
    for kind, commit in (("cow", Action.COMMIT), ("mor", Action.DELTACOMMIT)):
        context = context_of(new_table(STORED, type=kind))
        verb = RowsVerb(operation="UPSERT", match=RowMatch("keys"), rows=context.engine.from_arrow(STORED))
        assert verb.action is Action.COMMIT
        assert action_of(context.config, verb) is commit, kind
        replacing = RowsVerb(
            operation="INSERT_OVERWRITE", match=RowMatch("none"), rows=verb.rows, action=Action.REPLACECOMMIT
        )
        assert action_of(context.config, replacing) is Action.REPLACECOMMIT, kind


def test_non_blocking_writers_are_admitted_to_a_merge_on_read_bucket_table_of_version_eight_alone() -> None:
    bucket: dict[str, Any] = {"index": "bucket", "buckets": 2}
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"type": "mor", **bucket}, True),
        ({"type": "mor", **bucket, "table_version": 8}, True),
        ({"type": "mor", **bucket, "table_version": 6}, False),
        ({"type": "cow", **bucket}, False),
        ({"type": "mor", "index": "simple"}, False),
    ]
    for settings, admitted in cases:
        context = context_of(new_table(STORED, **settings), **NON_BLOCKING)
        if admitted:
            admit(context, "UPSERT")
            continue
        with pytest.raises(InvalidOption, match="non-blocking writers need") as refused:
            admit(context, "UPSERT")
        assert refused.value.context["option"] == "hoodie.write.concurrency.mode", settings


def test_rows_of_file_groups_are_counted_and_unknown_where_a_file_is_gone() -> None:
    table = new_table(STORED)
    snapshot = context_of(table).opened
    groups = {s.partition: [s.file_id] for s in snapshot.file_slices()}
    assert rows_of_groups(snapshot, groups) == 3
    assert rows_of_groups(snapshot, {"oslo": groups["oslo"]}) == 2
    assert rows_of_groups(snapshot, {"oslo": ["another"]}) == 0
    assert rows_of_groups(snapshot, {}) == 0
    (rome,) = (s for s in snapshot.file_slices(["rome"]) if s.base_file is not None)
    assert rome.base_file is not None
    open_storage(table.uri).delete(rome.base_file.path)
    assert rows_of_groups(context_of(table).opened, groups) is None


def test_a_write_to_a_group_in_a_pending_clustering_is_refused_unless_the_clustering_gives_way() -> None:
    table = new_table(STORED)
    table.maintenance.cluster(["id"], plan_only=True)
    allows, rejects = (
        context_of(table, **{"hoodie.clustering.updates.strategy": f"Spark{strategy}UpdateStrategy"})
        for strategy in ("Allow", "Reject")
    )
    snapshot = rejects.opened
    group = next(iter(snapshot.timeline.pending_clustering))
    refuse_clustered(snapshot, allows.settings, [group])
    refuse_clustered(snapshot, rejects.settings, [("oslo", "another")])
    refuse_clustered(snapshot, rejects.settings, [])
    refuse_clustered(snapshot, rejects.settings, [group], resized_groups=[group])
    with pytest.raises(CommitConflict, match="is in the pending clustering") as refused:
        refuse_clustered(snapshot, rejects.settings, [("oslo", "another"), group])
    assert (refused.value.context["partition"], refused.value.context["file_id"]) == group


def test_rows_that_lack_columns_are_partial_and_these_columns_are_named() -> None:
    context = context_of(new_table(STORED))
    given = context.engine.from_arrow(pa.table({"id": pa.array([1]), "city": ["oslo"], "ts": pa.array([2])}))
    verb = RowsVerb(operation="UPSERT", match=RowMatch("keys"), rows=given, partial=True)
    assert verb.absent(context, verb.schema(context, context.opened)) == ("v",)
    whole = RowsVerb(operation="UPSERT", match=RowMatch("keys"), rows=context.engine.from_arrow(STORED))
    assert whole.absent(context, whole.schema(context, context.opened)) == ()
