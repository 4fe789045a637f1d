"""Plans and results of table services beside what real Hudi wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.avro.encoder import avro_header, read_avro_file
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.timeline.bodies.encoding import schema_text
from lakebed.timeline.bodies.plans import (
    CleanPlan,
    CompactionPlan,
    clean_body,
    clean_files,
    clustering_body,
    compaction_body,
    compaction_operations,
    encode_clean_metadata,
)
from lakebed.timeline.bodies.rollback import decode_action
from support.golden_tables import golden, golden_tables

BY_CURRENT_HUDI = [t.name for t in golden_tables(lambda t: t.name.startswith("v9_"))]


def bodies(name: str, ending: str) -> Iterator[tuple[str, bytes]]:
    for path, body in golden(name).files().items():
        if path.endswith(ending) and body.startswith(b"Obj"):
            yield path, body


def all_bodies(ending: str) -> list[tuple[str, bytes]]:
    return [entry for name in BY_CURRENT_HUDI for entry in bodies(name, ending)]


@pytest.mark.rest
def test_cleans_are_encoded_as_hudi_has_them() -> None:
    plans = {path.rpartition("/")[2].split(".")[0]: body for path, body in all_bodies(".clean.requested")}
    compared = 0
    for path, body in all_bodies(".clean"):
        instant = path.rpartition("/")[2].split("_")[0]
        plan, theirs = decode_action(plans[instant]), read_avro_file(body)
        assert avro_header(plans[instant]).schema == schema_text("HoodieCleanerPlan")
        ours = encode_clean_metadata(instant, plan, theirs["timeTakenInMillis"])
        assert avro_header(ours).schema == avro_header(body).schema
        if not plan["partitionsToBeDeleted"] and not theirs["extraMetadata"]:
            assert read_avro_file(ours) == theirs
            compared += 1
        earliest = plan["earliestInstantToRetain"]
        first = Instant(earliest["timestamp"], Action(earliest["action"]), State.COMPLETED) if earliest else None
        root = next(iter(plan["filePathsToBeDeletedPerPartition"].values()))[0]["filePath"]
        partition = next(iter(clean_files(plan)))
        root = root.rpartition("/")[0].removesuffix("/" + partition)
        again = CleanPlan(clean_files(plan), first, plan["lastCompletedCommitTimestamp"])
        found = read_avro_file(clean_body(f"file://{root}", again).encode())
        if not plan["partitionsToBeDeleted"] and not plan["extraMetadata"]:
            assert found == plan
    assert compared


@pytest.mark.rest
def test_compaction_plans_are_encoded_as_hudi_has_them() -> None:
    compared = 0
    for _, body in all_bodies(".compaction.requested"):
        plan = decode_action(body)
        assert avro_header(body).schema == schema_text("HoodieCompactionPlan")
        slices = [_slice(entry) for entry in plan["operations"]]
        ours = read_avro_file(compaction_body(CompactionPlan(tuple(slices))).encode())
        operations = compaction_operations(plan)
        assert [(o.partition, o.file_id, o.instant) for o in operations] == [
            (s.partition, s.file_id, s.instant) for s in slices
        ]
        assert ours["operations"] == plan["operations"]
        assert {**ours, "operations": []} == {**plan, "operations": []}
        compared += 1
    assert compared


def test_log_compaction_plans_are_encoded_as_hudi_has_them() -> None:
    for _, body in bodies("v9_mor_log_compaction", ".logcompaction.requested"):
        plan = decode_action(body)
        slices = tuple(_slice(entry) for entry in plan["operations"])
        assert read_avro_file(compaction_body(CompactionPlan(slices, is_log_compaction=True)).encode()) == plan


def _slice(entry: dict[str, object]) -> FileSlice:
    """A slice with the files that an operation names; their bytes are those of the operation together."""
    partition, file_id, instant = (str(entry[name]) for name in ("partitionPath", "fileId", "baseInstantTime"))
    names = entry["deltaFilePaths"]
    assert isinstance(names, list)
    metrics = entry["metrics"]
    assert isinstance(metrics, dict)
    sizes = [int(metrics["TOTAL_LOG_FILES_SIZE"]), *[0] * len(names)]
    logs = [LogFile(partition, file_id, "", 1, "", name, size) for name, size in zip(names, sizes, strict=False)]
    base = entry["dataFilePath"]
    return FileSlice(
        partition,
        file_id,
        instant,
        BaseFile(partition, file_id, "", instant, str(base), 0) if base else None,
        tuple(logs),
    )


@pytest.mark.parametrize("old", [{"filesToBeDeletedPerPartition": {"p": ["/t/p/f"]}}, {}])
def test_clean_plans_of_old_releases(old: dict[str, object]) -> None:
    assert clean_files(old) == ({"p": ["f"]} if old else {})


def test_a_plan_that_is_run_at_once_is_the_one_that_the_timeline_has() -> None:
    rows = pa.table({"id": range(6), "city": ["a", "b"] * 3, "ts": [1] * 6})
    off = {"hoodie.compact.inline": False, "hoodie.parquet.small.file.limit": 0}
    table = lakebed.create(
        "memory://plans/run_at_once", rows, key="id", partition_by="city", type="mor", properties=off
    )
    table.insert(rows)
    table.insert(pa.table({"id": range(6, 8), "city": ["a", "b"], "ts": [1, 1]}))
    clustering = table.maintenance.cluster(dry_run=True).plan
    table.upsert(rows)
    compaction = table.maintenance.compact(dry_run=True).plan
    assert compaction is not None
    assert clustering is not None
    clean = CleanPlan({"a": ["f"], "b": []}, Instant("1", Action.COMMIT, State.COMPLETED), "2", partitions=("b",))
    for body in (
        compaction_body(compaction),
        compaction_body(replace(compaction, is_log_compaction=True, missing=("a",))),
        clustering_body("file:///t", clustering),
        clustering_body("file:///t", replace(clustering, sort_columns=("ts",), layout="ZORDER")),
        clean_body("file:///t", clean),
        clean_body("file:///t", replace(clean, earliest=None, consumers=("c",))),
    ):
        assert body.record == decode_action(body.encode())
