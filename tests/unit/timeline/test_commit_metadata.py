"""Commit bodies: what is missing reads as zero, what is changed is written, both forms say the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakebed.errors import CorruptFile
from lakebed.format.avro.encoder import read_avro_file
from lakebed.model import Action, CommitMetadata, WriteStat
from lakebed.timeline.bodies.commit import PartitionProfile, decode_commit, encode_commit, encode_inflight
from lakebed.timeline.bodies.encoding import pretty_json

STAT = WriteStat("f-0", "p/f-0_0-1-2_3.parquet", "p", "2", 10, 4, 3, 1, 999, "f-0_0-0-0_2.parquet", 0, 77)
META = CommitMetadata(
    "UPSERT", {"p": (STAT,), "": (replace(STAT, partition="", path="x"),)}, {}, {"schema": '{"a":"é"}', "k": ""}
)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_commit_metadata_decodes_to_what_was_encoded(version: int) -> None:
    assert replace(decode_commit(encode_commit(META, version, Action.COMMIT)), raw={}) == META
    replaced = replace(META, replaced={"p": ("a-0", "b-0")})
    assert replace(decode_commit(encode_commit(replaced, version, Action.REPLACECOMMIT)), raw={}) == replaced


@pytest.mark.parametrize("version", [9, 8, 6])
def test_the_stat_of_a_log_file_names_its_slice(version: int) -> None:
    logs = (".f-0_2.log.1_0-1-2", ".f-0_3.log.2_0-1-2")
    stat = replace(
        STAT, path=f"p/{logs[1]}", base_file="f-0_0-0-0_2.parquet", log_files=logs, log_version=2, log_offset=0
    )
    meta = replace(META, stats={"p": (stat, STAT)})
    found = decode_commit(encode_commit(meta, version, Action.DELTACOMMIT))
    assert replace(found, raw={}) == meta
    of_log, of_base = found.raw["partitionToWriteStats"]["p"]  # type: ignore[index]
    assert (of_log["logVersion"], of_log["logOffset"], of_log["logFiles"]) == (2, 0, list(logs))
    assert [of_base.get(name) for name in ("logVersion", "logOffset", "baseFile", "logFiles")] == [None] * 4


@pytest.mark.parametrize("version", [9, 6])
def test_changed_facts_are_written_and_the_others_are_retained(version: int) -> None:
    decoded = decode_commit(encode_commit(META, version, Action.DELTACOMMIT))
    stat = {**decoded.raw["partitionToWriteStats"]["p"][0], "totalLogBlocks": 5}  # type: ignore[index]
    decoded = replace(decoded, raw={**decoded.raw, "partitionToWriteStats": {"p": [stat]}})
    changed = replace(decoded, stats={"p": (replace(STAT, num_deletes=2),)}, extra={"schema": "n"}, operation="INSERT")
    again = decode_commit(encode_commit(changed, version, Action.DELTACOMMIT))
    assert again.raw["partitionToWriteStats"] == {"p": [{**stat, "numDeletes": 2}]}
    assert (again.operation, again.extra) == ("INSERT", {"schema": "n"})


def test_missing_and_null_fields_read_as_nothing() -> None:
    body = {"partitionToWriteStats": {"p": [{"fileId": "f", "numWrites": None, "runtimeStats": None}], "q": None}}
    meta = decode_commit(json.dumps(body).encode())
    assert meta.operation == "UNKNOWN"
    assert meta.stats == {"p": (WriteStat("f", "", "p"),), "q": ()}
    assert decode_commit(b"{}") == CommitMetadata("UNKNOWN")
    assert decode_commit(b"") == CommitMetadata("UNKNOWN")


@pytest.mark.parametrize("body", [b"junk", b"[1]", b'"text"', b"Obj\x01"])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"x\.commit"):
        decode_commit(body, "x.commit")


def test_an_inflight_profile_lists_inserts_then_file_groups() -> None:
    body = encode_inflight("UPSERT", [PartitionProfile("p", 4, [("f-0", "2", 6)])], 9)
    stats = read_avro_file(body)["partitionToWriteStats"]["p"]
    assert [(s["fileId"], s["prevCommit"], s["numInserts"], s["numUpdateWrites"]) for s in stats] == [
        ("", "null", 4, 0),
        ("f-0", "2", 0, 6),
    ]


def test_a_compaction_is_marked() -> None:
    assert read_avro_file(encode_commit(META, 9, Action.COMPACTION))["compacted"] is True
    assert read_avro_file(encode_commit(META, 9, Action.COMMIT))["compacted"] is False


@pytest.mark.rest
def test_many_stats_in_one_body() -> None:
    stats = {
        f"p{n}": tuple(replace(STAT, file_id=f"{n}-{i}", partition=f"p{n}") for i in range(500)) for n in range(10)
    }
    meta = CommitMetadata("BULK_INSERT", stats)
    for version in (9, 6):
        assert decode_commit(encode_commit(meta, version, Action.COMMIT)).stats == stats


def test_pretty_json_is_json() -> None:
    value = {"a": [], "b": {}, "c": [{"d": None, 'é\n"': True}, 1, "x"], "e": -5}
    assert json.loads(pretty_json(value)) == value
    assert pretty_json({"a": [{"b": 1}, {"c": []}]}) == '{\n  "a" : [ {\n    "b" : 1\n  }, {\n    "c" : [ ]\n  } ]\n}'
