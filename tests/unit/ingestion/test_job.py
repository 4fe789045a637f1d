"""Descriptions of ingest jobs: TOML files, dicts and objects, and errors that name the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.ingestion.job import IngestJob, jobs_of
from lakebed.ingestion.registry import source_of

ONE: dict[str, Any] = {"source": {"kind": "files", "path": "/data"}, "target": {"uri": "/lake/trips"}}


def refused(values: Any) -> str:
    def understand() -> None:
        for job in jobs_of(values):
            source_of(job.source)

    with pytest.raises(InvalidOption) as error:
        understand()
    return str(error.value)


def test_a_toml_file_a_dict_and_an_object_are_the_same_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'interval = 3\n[source]\nkind = "files"\npath = "/data"\n[transform]\nsql = "SELECT 1"\n'
        '[target]\nuri = "/lake/trips"\ncreate = { key = "id" }\n[errors]\ntable = "/lake/errors"\n'
    )
    (of_file,) = jobs_of(path)
    (of_dict,) = jobs_of(
        {
            **ONE,
            "interval": 3,
            "transform": {"sql": "SELECT 1"},
            "target": {"uri": "/lake/trips", "create": {"key": "id"}},
            "errors": {"table": "/lake/errors"},
        }
    )
    target: Any = {"uri": "/lake/trips", "create": {"key": "id"}}
    errors: Any = {"table": "/lake/errors"}
    assert of_file == of_dict == IngestJob(ONE["source"], target, "SELECT 1", errors, interval=3.0)
    assert (of_file.interval, of_file.errors.fails, of_file.label) == (3.0, False, "/lake/trips")


def test_a_file_has_several_jobs_by_name(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    sections = [
        f'[jobs.{name}.source]\nkind = "files"\npath = "/{name}"\n[jobs.{name}.target]\nuri = "/lake/{name}"\n'
        for name in ("a", "b")
    ]
    path.write_text("".join(sections))
    assert [(job.label, job.target.uri) for job in jobs_of(str(path))] == [("a", "/lake/a"), ("b", "/lake/b")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sorce": {}}, "the job has no key 'sorce'. Did you mean source?"),
        ({"source": {"kind": "files", "pth": "/x"}}, "[source] has no key 'pth'. Did you mean path?"),
        ({"source": {"kind": "files"}}, "[source] lacks path. Add path = .... "),
        ({"source": {"kind": "kafak"}}, "[source] kind has no key 'kafak'. Did you mean kafka?"),
        ({"source": {"path": "x"}}, "[source] lacks kind"),
        ({"source": 7}, "a source is int"),
        ({"target": {}}, "[target] lacks uri"),
        ({"target": {"uri": "/t", "operation": "merge"}}, "upsert, insert, bulk_insert"),
        ({"target": {"uri": 7}}, "[target] uri is 7. Give a text."),
        ({"interval": "often"}, "interval is 'often'. Give a number."),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_rows": True}, "max_rows is True. Give a whole number."),
        ({"errors": {"on_failure": "skip"}}, "fail, table"),
        ({"errors": {"on_failure": "table"}}, "no table is named"),
        ({"transform": {"query": "x"}}, "[transform] has no key 'query'"),
        ({"target": {"uri": "${NOT_SET_HERE}/x"}}, "NOT_SET_HERE is not set"),
    ],
)
def test_unknown_keys_of_a_description_are_named_with_their_section(change: dict[str, Any], message: str) -> None:
    assert message.strip(" .") in refused({**ONE, **change})


def test_a_file_that_is_no_toml_or_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[source\n")
    assert "is no TOML" in refused(tmp_path / "job.toml")
    assert "cannot be read" in refused(tmp_path / "nothing.toml")
    assert "not int" in refused(7)


def test_texts_have_the_values_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    (job,) = jobs_of({**ONE, "target": {"uri": "${LAKE}/trips", "storage_options": {"region": "${LAKE}-1"}}})
    assert (job.target.uri, job.target.storage_options) == ("s3://lake/trips", {"region": "s3://lake-1"})


def test_an_argument_that_create_does_not_have_is_named() -> None:
    class Rows:
        def poll(self, checkpoint: str | None, limit: int) -> tuple[Any, None, str]:
            import pyarrow as pa

            return pa.table({"id": [1]}), None, "1"

    job = {"source": Rows(), "target": {"uri": "memory://job/create", "create": {"kye": "id"}}}
    with pytest.raises(InvalidOption, match="kye"):
        lakebed.ingest(job, once=True)


def test_the_extra_of_a_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    job = {"source": {"kind": "kafka", "topic": "t", "bootstrap": "h:1"}, "target": {"uri": "memory://job/kafka"}}
    with pytest.raises(UnsupportedFeature, match=r"lakebed\[kafka\]"):
        lakebed.ingest(job, once=True)
