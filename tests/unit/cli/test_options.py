"""`lakebed options check`: how a job's file is read, and what it answers."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.config import options
from lakebed.config.java_properties import read_properties
from lakebed.errors import InvalidOption, UnsupportedFeature


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a: 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a = b:c=d", {"a": "b:c=d"}),
        ("  a=1\n! no\n# no\n\nb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n    2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1,\\\n#2", {"a": "1,#2"}),
        ("a\\:b\\ c=x\\ty\\u00e9", {"a:b c": "x\ty\u00e9"}),
        ("a\nb=", {"a": "", "b": ""}),
        ("a=1\\", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


def _check(
    capsys: pytest.CaptureFixture[str], folder: Path, text: str, *arguments: str
) -> tuple[int, list[dict[str, str]]]:
    job = folder / "job.properties"
    job.write_text(text)
    code = invoke(["options", "check", str(job), *arguments, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_options_that_stop_a_job_come_first_and_a_line_concludes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.properties"
    job.write_text("hoodie.table.name: t\nhoodie.indx.type=BUCKET\nhoodie.bucket.index.num.buckets=many\n")
    assert invoke(["options", "check", str(job)]) == InvalidOption.exit_code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [
        *("hoodie.bucket.index.num.buckets", "hoodie.indx.type", "hoodie.table.name")
    ]
    assert lines[-1] == "the job does not run: 2 options to correct (1 wrong, 1 unknown, 1 implemented)"
    job.write_text("hoodie.table.name: t\n")
    assert invoke(["options", "check", str(job)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "the job runs (1 implemented)"


def test_a_wrong_value_is_named_with_what_it_should_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, (number, word) = _check(
        capsys, tmp_path, "hoodie.bucket.index.num.buckets=many\nhoodie.datasource.write.operation=upsrt"
    )
    assert (number["verdict"], word["verdict"]) == ("wrong", "wrong")
    assert "'many' is not a" in number["note"]
    assert "'upsrt' is not one of" in word["note"]


def test_two_names_of_one_option_with_two_values_are_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "hoodie.clean.failed.writes.policy=LAZY\nhoodie.cleaner.policy.failed.writes=EAGER"
    code, verdicts = _check(capsys, tmp_path, text)
    assert code == InvalidOption.exit_code
    assert verdicts[0]["verdict"] == "wrong"
    assert "hoodie.clean.failed.writes.policy=LAZY" in verdicts[0]["note"]


def test_an_option_that_needs_a_missing_package_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "hoodie.write.lock.provider"
    job = f"{key}=org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == "kazoo" else find_spec(name))
    code, (verdict,) = _check(capsys, tmp_path, job)
    assert (code, verdict["verdict"]) == (InvalidOption.exit_code, "not installed")
    assert "pip install 'lakebed[zookeeper]'" in verdict["note"]
    index, transport = "hoodie.index.type=HBASE", "lakebed.index.hbase.transport=thrift"
    assert [v["verdict"] for v in _check(capsys, tmp_path, index)[1]] == ["not installed"]
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == "kazoo" else object())
    assert {v["verdict"] for v in _check(capsys, tmp_path, f"{index}\n{transport}")[1]} == {"implemented"}
    monkeypatch.setattr(options, "find_spec", lambda name: object())
    assert _check(capsys, tmp_path, job)[1][0]["verdict"] == "implemented"


@pytest.mark.parametrize("key", ["hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable"])
def test_catalog_sync_is_done_unless_it_is_to_be_ignored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str
) -> None:
    code, (verdict,) = _check(capsys, tmp_path, f"{key}=true")
    assert (code, verdict["verdict"]) == (0, "implemented")
    code, (verdict,) = _check(capsys, tmp_path, f"{key}=true", "--ignore-sync")
    assert (code, verdict["verdict"]) == (0, "ignored")
    assert verdict["note"] == "lakebed.catalog.sync=ignore: nothing is registered in a catalog"
    job = {"hoodie.datasource.hive_sync.mode": "jdbc", key: "true"}
    lines = "\n".join(f"{name}={value}" for name, value in job.items())
    code, verdicts = _check(capsys, tmp_path, lines)
    assert [v["verdict"] for v in verdicts] == ["refused", "implemented"]
    code, verdicts = _check(capsys, tmp_path, f"{lines}\nlakebed.catalog.sync=ignore")
    assert (code, [v["verdict"] for v in verdicts]) == (0, ["ignored", "ignored", "implemented"])
    job |= {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    with pytest.raises(UnsupportedFeature, match="speaks to the metastore itself"):
        lakebed.write({"id": [1]}, str(tmp_path / "t"), job)
    lakebed.write({"id": [1]}, str(tmp_path / "t"), job | {"lakebed.catalog.sync": "ignore"})
    table = lakebed.open(str(tmp_path / "t"))
    assert table.upsert({"id": [2]}).services == ()
    assert table.count() == 2
