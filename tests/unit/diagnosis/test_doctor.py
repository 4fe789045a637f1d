"""`lakebed maintenance doctor`: what is wrong with a table, its storage or the installation, and what is to be done
about it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.lock import default_lock
from lakebed.diagnosis import storage as storage_checks
from lakebed.diagnosis.findings import Diagnosis, Severity
from lakebed.errors import InvalidOption
from lakebed.properties.file import BACKUP_PATH, PROPERTIES_PATH
from lakebed.storage import open_storage
from lakebed.storage.base import FileInfo, refused
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import Killed, crash_at

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", "a"], "ts": [1, 1, 1]})
QUIET: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}


@pytest.fixture
def trips(tmp_path: Path) -> Callable[..., Table]:
    """Makes a table on the disk, with three rows."""

    def create(name: str = "trips", **given: Any) -> Table:
        words: dict[str, Any] = {"index": "bucket", "buckets": 1} | given
        table = lakebed.create(str(tmp_path / name), ROWS, key="id", partition_by="city", ordering="ts", **words)
        table.upsert(ROWS)
        return table

    return create


def stored(table: Table) -> dict[str, bytes]:
    """The files of a table, but the lock, which is taken and given back."""
    root = Path(table.uri)
    files = (path for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def bad(page: Diagnosis) -> list[tuple[str, str]]:
    return [(finding.check, finding.severity.name) for finding in page.findings if finding.severity]


def test_a_table_in_order_has_no_finding_to_act_on_and_stays_as_it_is(trips: Callable[..., Table]) -> None:
    table = trips()
    before = stored(table)
    page = table.maintenance.doctor(verify=True)
    assert bad(page) == []
    assert page.ok
    assert page
    assert {finding.check for finding in page.findings} == {
        "versions",
        "storage",
        "clock",
        "properties",
        "lock",
        "services",
        "indexes",
        "files",
        "archive",
    }
    assert "verified, no difference: column_stats, files, partition_stats" in str(page)
    assert stored(table) == before


@pytest.mark.rest
def test_read_only_writes_nothing_at_all(trips: Callable[..., Table]) -> None:
    table = trips(type="mor", properties=QUIET)
    with crash_at(12, "kill"), pytest.raises(Killed):  # a pending instant, whose writer's heartbeat is looked at
        lakebed.open(table.uri).upsert(ROWS)
    before = stored(table)

    class Watched(WrappedStorage):
        def _before(self, verb: str, path: str) -> None:
            assert verb.startswith(("list", "head", "read", "open")), f"{verb} {path}"

    with wrapping(Watched):
        page = lakebed.maintenance.doctor(table.uri, read_only=True, verify=True)
    assert "writing was not tried" in page.of_check("storage")[0].text
    assert page.of_check("lock") == ()
    assert stored(table) == before


class Denied(WrappedStorage):
    """A storage that refuses requests of one kind for probe files."""

    verb = ""

    def _before(self, verb: str, path: str) -> None:
        if verb == self.verb and (".doctor-" in path or path == ".hoodie/.temp"):
            raise refused("Forbidden", url=self.url(path))


@pytest.mark.parametrize(
    ("verb", "step"), [("put_if_absent", "create"), ("read", "read"), ("list", "list"), ("delete", "delete")]
)
def test_a_permission_that_is_lacking_is_named_and_the_probe_removed(
    trips: Callable[..., Table], verb: str, step: str
) -> None:
    table = trips()

    class Refusing(Denied):
        pass

    Refusing.verb = verb
    with wrapping(Refusing):
        page = lakebed.maintenance.doctor(table.uri)
    (finding,) = page.of_check("storage")
    assert finding.severity is Severity.ERROR
    assert finding.text == f"cannot {step} a probe file in .hoodie/.temp: Forbidden"
    assert finding.remedy.endswith(f"lakebed maintenance doctor {table.uri} --read-only")
    assert any(".doctor-" in path for path in stored(table)) is (verb == "delete")


class Shifted(WrappedStorage):
    """A storage whose clock is an hour off."""

    seconds = 3600

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        for info in super().list(prefix, recursive=recursive):
            yield FileInfo(info.path, info.size, info.modified + 1000 * self.seconds)


@pytest.mark.parametrize(("seconds", "side"), [(3600, "behind"), (-3600, "ahead of")])
def test_a_clock_that_differs_from_the_storages_is_a_warning(
    trips: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, seconds: int, side: str
) -> None:
    table = trips()
    monkeypatch.setattr(Shifted, "seconds", seconds)
    with wrapping(Shifted):
        page = lakebed.maintenance.doctor(table.uri)
    (finding,) = page.of_check("clock")
    assert finding.severity is Severity.WARNING
    assert finding.text.startswith("the clock here is 3")
    assert f" s {side} the one of the storage" in finding.text


@pytest.mark.rest
@pytest.mark.parametrize(("seconds", "severity"), [(5, Severity.FINE), (25, Severity.WARNING)])
def test_seconds_between_two_clocks_are_no_finding_to_act_on(
    trips: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, seconds: int, severity: Severity
) -> None:
    table = trips()
    monkeypatch.setattr(Shifted, "seconds", seconds)
    with wrapping(Shifted):
        assert lakebed.maintenance.doctor(table.uri).of_check("clock")[0].severity is severity


def test_a_lock_that_another_writer_holds_is_a_warning_with_its_holder(
    trips: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips()
    monkeypatch.setattr(storage_checks, "LOCK_SECONDS", 0.05)
    with default_lock(open_storage(table.uri)):
        (finding,) = table.maintenance.doctor().of_check("lock")
    assert finding.severity is Severity.WARNING
    assert "is held by" in finding.text
    (fine,) = table.maintenance.doctor().of_check("lock")
    assert fine.severity is Severity.FINE


def test_a_lock_provider_that_cannot_be_used_is_an_error(trips: Callable[..., Table]) -> None:
    table = trips()
    provider = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
    (finding,) = table.maintenance.doctor(options={"hoodie.write.lock.provider": provider}).of_check("lock")
    assert finding.severity is Severity.ERROR
    assert finding.text.endswith("needs hoodie.write.lock.zookeeper.url")


def test_a_service_that_no_write_runs_is_a_warning_whose_command_ends_it(trips: Callable[..., Table]) -> None:
    table = trips(type="mor", properties=QUIET | {"hoodie.compact.inline.max.delta.commits": 2})
    table.upsert(ROWS)
    page = table.maintenance.doctor()
    assert bad(page) == [("services", "WARNING")]
    finding = page.findings[0]
    assert finding.text.startswith("compact is due: 2 delta commits since the last compaction")
    assert finding.text.endswith("; no write runs it")
    assert invoke(shlex.split(finding.remedy)[1:]) == 0
    assert table.maintenance.doctor().ok


@pytest.mark.rest
def test_a_service_that_the_next_write_runs_is_no_warning(trips: Callable[..., Table]) -> None:
    table = trips(type="mor", properties={"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 9})
    table.upsert(ROWS)
    table.configure({"hoodie.compact.inline.max.delta.commits": "2"})
    page = table.maintenance.doctor()
    assert page.ok
    assert any("compact is due" in f.text and f.text.endswith("; the next write runs it") for f in page.findings)


@pytest.mark.rest
def test_a_dead_writer_is_a_warning_whose_command_rolls_it_back(trips: Callable[..., Table]) -> None:
    table = trips(properties=QUIET)
    with crash_at(12, "kill"), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(ROWS)
    page = table.maintenance.doctor()
    (finding,) = [one for one in page.findings if one.severity]
    assert finding.text.startswith("rollback is due: the writers of 2")
    assert invoke(shlex.split(finding.remedy)[1:]) == 0
    assert table.maintenance.doctor().ok


@pytest.mark.rest
def test_many_small_files_of_a_partition_path_are_a_warning_whose_command_ends_it(
    trips: Callable[..., Table],
) -> None:
    table = trips(index="simple", buckets=None, properties=QUIET)
    for n in range(8):
        table.bulk_insert(ROWS.set_column(0, "id", [pa.array([10 * n + 10, 10 * n + 11, 10 * n + 12])]))
    assert table.maintenance.doctor().ok  # nine in each partition path
    table.bulk_insert(ROWS.set_column(0, "id", [pa.array([991, 992, 993])]))
    page = table.maintenance.doctor()
    assert bad(page) == [("files", "WARNING")]
    assert page.findings[0].text == "2 partition paths with 10 small files or more; a has 10"
    assert invoke(shlex.split(page.findings[0].remedy)[1:]) == 0
    assert table.maintenance.doctor().ok
    assert table.count() == 30


@pytest.mark.rest
def test_an_index_by_partition_path_lacks_nothing_before_the_first_path(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "new"), ROWS, key="id", partition_by="city", index="simple")
    table.indexes.create("record_index")
    assert bad(table.maintenance.doctor(verify=True)) == []
    table.upsert(ROWS)
    assert bad(table.maintenance.doctor(verify=True)) == []


def test_a_missing_base_file_is_named_with_what_to_do_before_an_index_is_repaired(trips: Callable[..., Table]) -> None:
    table = trips()
    lost = next(one.label for one in table.files if one.partition == "a")
    (Path(table.uri) / lost).unlink()
    page = table.maintenance.doctor(verify=True)
    (finding,) = page.of_check("files")[:1]
    assert finding.text == f"missing, and the table lists it, so that reads of its rows fail: {lost}"
    assert finding.remedy.startswith("restore the file from a copy, or roll back the commit that wrote it, before")
    assert not page.ok
    with pytest.raises(lakebed.CorruptFile, match="is missing, and the table lists it"):
        table.scan().to_arrow()


def test_keys_that_are_stored_twice_are_an_error_of_verify_whose_command_mends_it(trips: Callable[..., Table]) -> None:
    table = trips(index="simple", buckets=None)
    table.bulk_insert(ROWS.slice(0, 1))
    assert table.maintenance.doctor().ok  # nothing was compared
    page = table.maintenance.doctor(verify=True)
    assert bad(page) == [("indexes", "ERROR")]
    assert page.findings[0].text == "record keys: 1 difference from the table's rows"
    assert invoke(shlex.split(page.findings[0].remedy)[1:]) == 0
    assert table.maintenance.doctor(verify=True).ok
    assert table.count() == 3


def test_a_metadata_table_that_is_missing_is_an_error_and_the_other_checks_run(trips: Callable[..., Table]) -> None:
    table = trips()
    properties = Path(table.uri) / ".hoodie" / "metadata" / ".hoodie" / "hoodie.properties"
    properties.unlink()
    page = table.maintenance.doctor()
    assert ("indexes", "ERROR") in bad(page)
    assert page.of_check("archive")[0].severity is Severity.FINE
    assert page.of_check("lock")[0].severity is Severity.FINE


def test_remedies_on_the_command_line_name_the_table(trips: Callable[..., Table], capsys: Any) -> None:
    table = trips("my trips")
    (Path(table.uri) / ".hoodie" / "metadata" / ".hoodie" / "hoodie.properties").unlink()
    assert invoke(["maintenance", "doctor", table.uri]) == 2
    shown = capsys.readouterr().out
    assert not re.search(r"\bURI\b|\bt\.\w+\(", shown)
    assert f"`lakebed indexes repair '{table.uri}'` builds it again" in shown
    assert invoke(["maintenance", "doctor", table.uri, "--output", "json"]) == 2
    finding = next(one for one in json.loads(capsys.readouterr().out)["findings"] if one["check"] == "indexes")
    line = finding["remedy"].split("`")[1]
    assert line == f"lakebed indexes repair '{table.uri}'"
    assert invoke(shlex.split(line)[1:]) == 0
    assert table.maintenance.doctor().ok


def test_an_unfinished_restore_is_finished_by_the_command_of_its_finding(trips: Callable[..., Table]) -> None:
    table = trips()
    first = table.timeline[0].time
    table.upsert(ROWS)
    table.restore(first)
    assert table.maintenance.doctor().ok
    (completed,) = Path(table.uri, ".hoodie/timeline").glob("*.restore")
    completed.unlink()
    for path in completed.parent.glob("*.restore.*"):
        os.utime(path, (1, 1))  # its writer is dead
    (finding,) = (one for one in table.maintenance.doctor().of_check("properties") if one.severity)
    assert finding.text == "unfinished restore: the table has an unfinished restore on its timeline"
    line = finding.remedy.split("`")[1]
    assert line == f"lakebed restore {table.uri}"
    assert invoke(shlex.split(line)[1:]) == 0
    assert table.maintenance.doctor().ok


@pytest.mark.rest
def test_the_command_repairs_broken_properties_from_a_backup(trips: Callable[..., Table]) -> None:
    table = trips()
    file = Path(table.uri) / PROPERTIES_PATH
    right = file.read_bytes()
    file.write_bytes(b"hoodie.table.name")
    (finding,) = lakebed.maintenance.doctor(table.uri).of_check("properties")
    assert finding.severity is Severity.ERROR
    assert "Restore the file from a copy" in finding.remedy
    (Path(table.uri) / BACKUP_PATH).write_bytes(right)
    (finding, _) = lakebed.maintenance.doctor(table.uri).of_check("properties")
    assert finding.remedy == f"lakebed maintenance repair {table.uri} --part properties"
    assert invoke(shlex.split(finding.remedy)[1:]) == 0
    assert table.maintenance.doctor().ok


def test_a_folder_without_a_table_says_what_it_holds_and_gets_no_probe(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    page = lakebed.maintenance.doctor(str(tmp_path))
    assert bad(page) == [("table", "ERROR")]
    assert page.findings[0].text.endswith("it holds Parquet files")
    assert "lakebed.load(" in page.findings[0].remedy
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_storage_that_does_not_answer_is_one_error(trips: Callable[..., Table]) -> None:
    table = trips()

    class Closed(WrappedStorage):
        def _before(self, verb: str, path: str) -> None:
            raise refused("no credentials", "set AWS_ACCESS_KEY_ID", url="s3://lake/trips")

    with wrapping(Closed):
        page = lakebed.maintenance.doctor(table.uri)
    assert [(f.check, f.text, f.remedy) for f in page.findings if f.severity] == [
        ("storage", "no credentials", "Set AWS_ACCESS_KEY_ID.")
    ]


def test_a_scheme_that_no_storage_serves_is_an_error() -> None:
    page = lakebed.maintenance.doctor("ftp://lake/trips")
    assert bad(page) == [("storage", "ERROR")]
    assert not page


def test_wrong_options_raise() -> None:
    with pytest.raises(InvalidOption, match="provder"):
        lakebed.maintenance.doctor("memory://doctor/none", options={"hoodie.write.lock.provder": "x"})


def test_properties_that_other_engines_refuse_are_warnings(trips: Callable[..., Table]) -> None:
    dropped = trips(properties={"hoodie.datasource.write.drop.partition.columns": True})
    assert bad(dropped.maintenance.doctor()) == [("properties", "WARNING")]
    assert "the files lack the partition columns" in dropped.maintenance.doctor().findings[0].text


def test_a_java_that_pyspark_cannot_start_is_a_warning(
    trips: Callable[..., Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    page = table.maintenance.doctor()
    assert bad(page) == [("versions", "WARNING")]
    assert page.findings[0].text.startswith("no Java was found: PySpark ")
    java = tmp_path / "old-java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    assert table.maintenance.doctor().findings[0].text.startswith("Java 11.0.2 is older than 17: PySpark ")


def test_the_command_ends_with_the_severity_and_prints_json(
    trips: Callable[..., Table], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = trips(type="mor", properties=QUIET | {"hoodie.compact.inline.max.delta.commits": 2})
    assert invoke(["maintenance", "doctor", table.uri, "--verify"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{table.uri}: 0 errors, 0 warnings\nok       versions: lakebed ")
    table.upsert(ROWS)
    assert invoke(["maintenance", "doctor", table.uri, "--read-only", "--output", "json"]) == 1
    page = json.loads(capsys.readouterr().out)
    assert (page["uri"], page["severity"], page["exit_code"]) == (table.uri, "warning", 1)
    assert page["findings"][0]["check"] == "services"
    assert page["findings"][0]["remedy"] == f"lakebed maintenance run {table.uri} --once"
    assert invoke(["maintenance", "doctor", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'none'}: 1 error, 0 warnings\nerror    table: there is no")


def test_the_worst_findings_come_first_and_show_as_text_in_html(trips: Callable[..., Table]) -> None:
    page = lakebed.maintenance.doctor("ftp://<b>/trips")
    assert [finding.severity for finding in page.findings] == sorted(
        (finding.severity for finding in page.findings), reverse=True
    )
    assert "&lt;b&gt;" in page._repr_html_()
    assert "<b>" not in page._repr_html_()
