from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.concurrency.heartbeat import this_user
from lakebed.errors import InvalidOption


def written(place: Path) -> lakebed.Table:
    """A table with a commit of each verb, each with a message of its own name."""
    table = lakebed.create(str(place / "t"), {"id": [1], "city": ["a"], "n": [1]}, key="id", partition_by="city")
    rows = {"id": [1, 2, 3], "city": ["a", "a", "b"], "n": [1, 1, 1]}
    table.upsert(rows, message="upsert", metadata={"ticket": "OPS-7", "try": 2})
    table.insert({"id": [4], "city": ["c"], "n": [1]}, message="insert")
    table.bulk_insert({"id": [5], "city": ["d"], "n": [1]}, message="bulk_insert")
    table.merge({"id": [1], "city": ["a"], "n": [5]}).when_matched_update().execute(message="merge")
    table.update({"n": "n + 1"}, where="id = 2", message="update")
    table.delete([3], message="delete")
    table.insert_overwrite({"id": [6], "city": ["c"], "n": [1]}, message="insert_overwrite")
    table.delete_partitions(["d"], message="delete_partition")
    return table


VERBS = ["upsert", "insert", "bulk_insert", "merge", "update", "delete", "insert_overwrite", "delete_partition"]


def test_every_write_is_a_version_with_its_verb_message_and_author(tmp_path: Path) -> None:
    table = written(tmp_path)
    rows = table.versions.to_arrow().to_pylist()
    assert [row["number"] for row in rows] == list(range(1, 9))
    assert [row["operation"] for row in rows] == VERBS
    assert [row["message"] for row in rows] == VERBS
    assert {row["user"] for row in rows} == {this_user()}
    assert {row["host"] for row in rows} == {socket.gethostname()}
    assert all(row["program"] for row in rows)
    assert [row["metadata"] for row in rows] == [json.dumps({"ticket": "OPS-7", "try": "2"}), *[None] * 7]
    assert [(v.inserted, v.updated, v.deleted) for v in table.versions][:6] == [
        (3, 0, 0),
        (1, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]


def test_the_timeline_and_histories_of_rows_have_the_notes(tmp_path: Path) -> None:
    table = written(tmp_path)
    timeline = [row for row in table.timeline.to_arrow().to_pylist() if row["operation"]]
    assert [(row["operation"], row["message"]) for row in timeline] == [(verb, verb) for verb in VERBS]
    history = table.history([1]).to_arrow().to_pylist()
    assert [(row["operation"], row["message"], row["user"]) for row in history] == [
        ("merge", "merge", this_user()),
        ("upsert", "upsert", this_user()),
    ]


def test_operations_stay_hudis_where_hudi_reads_them(tmp_path: Path) -> None:
    table = written(tmp_path)
    bodies = [table.timeline.body(instant) for instant in table.timeline]
    assert [body["operationType"] for body in bodies][3:5] == ["UPSERT", "UPSERT"]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_service_after_a_write_is_no_work_of_its_verb(tmp_path: Path, kind: Any) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id", type=kind)
    table.upsert({"id": [1, 2], "n": [1, 1]})
    table.merge({"id": [1], "n": [2]}).when_matched_update().execute()
    table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    table.erase([1], message="request 17")
    operations = [row["operation"] for row in table.versions.to_arrow().to_pylist()]
    assert "erase" in operations
    assert [o for o in operations if o in ("compact", "cluster")]
    assert operations.count("erase") == 1


NOT_TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "schema": ({"metadata": {"schema": "x"}}, "'schema' cannot be a name in metadata"),
    "a name of lakebed": ({"metadata": {"lakebed.writer": "x"}}, "'lakebed.writer' cannot be a name in metadata"),
    "a name of Hudi": ({"metadata": {"_hoodie_x": "x"}}, "'_hoodie_x' cannot be a name in metadata"),
    "no name": ({"metadata": {"": "x"}}, "metadata has an entry without a name"),
    "a secret": ({"metadata": {"password": "x"}}, "metadata['password'] is a credential"),
    "a number as message": ({"message": 3}, "upsert() takes a text as message, not 3"),
    "a text as metadata": ({"metadata": "x"}, "upsert() takes a dict of names and values as metadata"),
    "a secret in a message": ({"message": "by https://ann:hunter2@host/x"}, "message is a credential"),
    "half of a pair": ({"message": "a\ud800"}, "the message of the write, 'a\\ud800', has no bytes in UTF-8"),
    "half of a pair as metadata": ({"metadata": {"a": "\ud800"}}, "has no bytes in UTF-8"),
    "half of a pair as a name": ({"metadata": {"\ud800": "a"}}, "has no bytes in UTF-8"),
    "a long message": ({"message": "x" * 4097}, "has 4,097 characters, and may have 4,096"),
}


@pytest.mark.parametrize("kind", NOT_TAKEN)
def test_notes_that_cannot_be_kept_are_refused_and_nothing_is_written(tmp_path: Path, kind: str) -> None:
    arguments, message = NOT_TAKEN[kind]
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id")
    with pytest.raises(InvalidOption) as raised:
        table.upsert({"id": [1]}, **arguments)
    assert message in str(raised.value)
    assert len(table.timeline) == 0


def test_the_longest_message_is_kept_whole(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id")
    table.upsert({"id": [1]}, message="é" * 4096)
    assert next(iter(table.versions)).message == "é" * 4096


def test_a_job_of_hudi_notes_by_options(tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "lakebed.message": "nightly",
        "lakebed.metadata.ticket": "OPS-7",
    }
    rows = __import__("pyarrow").table({"id": [1]})
    lakebed.write(rows, str(tmp_path / "t"), options)
    (version,) = lakebed.open(str(tmp_path / "t")).versions
    assert (version.message, version.metadata) == ("nightly", '{"ticket": "OPS-7"}')


def test_versions_print_without_columns_that_have_no_value(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id")
    table.upsert({"id": [1]})
    head = str(table.versions).splitlines()[0].split()
    assert head == ["number", "instant", "completion_time", "operation", "inserted", "updated", "deleted", "user"]
    table.upsert({"id": [1]}, message="why")
    assert "message" in str(table.versions).splitlines()[0].split()
    assert ">why</td>" in table.versions._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_a_version_is_taken_by_its_number(tmp_path: Path) -> None:
    table = written(tmp_path)
    versions = list(table.versions)
    assert [table.versions[number] for number in range(1, len(versions) + 1)] == versions
    assert (table.versions[-1], table.versions[-len(versions)]) == (versions[-1], versions[0])
    assert list(reversed(table.versions)) == versions[::-1]
    assert table.scan(as_of=table.versions[1]).count() == table.scan(as_of=1).count()
    for number in (0, len(versions) + 1, -len(versions) - 1):
        with pytest.raises(InvalidOption, match=f"has no version {number}. Its versions are 1 to {len(versions)}"):
            _ = table.versions[number]
    for wrong in ("first load", slice(0, 2), True, 1.0):
        with pytest.raises(InvalidOption, match="versions are taken by number, not by"):
            _ = table.versions[wrong]  # pyright: ignore[reportArgumentType]
