"""Settings of a living table: changed under its lock, checked like those of a job, refused where files go by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.lock import default_lock
from lakebed.config.options import service_settings
from lakebed.config.settings import PartitionTtlSettings
from lakebed.errors import InvalidOption, LockTimeout, UnsupportedFeature
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, crash_at
from support.compaction_tables import log_files
from support.restored_tables import refused
from support.write_tables import content, rows

Make = Callable[..., Table]


@pytest.fixture
def mor(make: Make) -> Table:
    return make(type="mor", index="bucket", buckets=1, properties={"hoodie.compact.inline": False})


def test_the_next_write_uses_the_changed_setting(mor: Table) -> None:
    mor.upsert(rows((1, "a", "x", 1)))
    mor.upsert(rows((1, "a", "y", 2)))
    assert log_files(mor) == 1
    before = dict(mor.properties)
    done = mor.configure({"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1})
    assert done.changes == {
        "lakebed.compact.inline": ("false", "true"),
        "lakebed.compact.inline.max.delta.commits": (None, "1"),
    }
    assert str(done).splitlines()[0] == "lakebed.compact.inline: false -> true"
    after = dict(lakebed.open(mor.uri).properties)
    assert after == before | {"lakebed.compact.inline": "true", "lakebed.compact.inline.max.delta.commits": "1"}
    mor.upsert(rows((1, "a", "z", 3)))
    assert log_files(mor) == 0
    # a name as the table shows it; None takes it off
    done = mor.configure({"lakebed.compact.inline.max.delta.commits": None, "hoodie.compact.inline": "false"})
    assert done.changes["lakebed.compact.inline.max.delta.commits"] == ("1", None)
    assert dict(lakebed.open(mor.uri).properties) == before
    assert str(mor.configure({"hoodie.compact.inline": False})) == "nothing to change"
    assert content(mor) == [(1, "a", "z", 3)]


def test_a_dry_run_changes_nothing(mor: Table) -> None:
    before = open_storage(mor.uri).read(".hoodie/hoodie.properties")
    planned = mor.configure({"hoodie.compact.inline": True}, dry_run=True)
    assert planned.to_dict() == {
        "changes": [{"key": "lakebed.compact.inline", "before": "false", "after": "true"}],
        "done": False,
    }
    assert open_storage(mor.uri).read(".hoodie/hoodie.properties") == before


def validators(queries: str) -> dict[str, Any]:
    """Settings of validators of a single value."""
    if "#" not in queries:
        queries += "#1"
    name = "hoodie.precommit.validators"
    return {name: "SqlQuerySingleResultPreCommitValidator", f"{name}.single.value.sql.queries": queries}


REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"hoodie.datasource.write.recordkey.field": "ts"}, ("cannot be changed", "lakebed.create")),
    ({"hoodie.table.recordkey.fields": "ts"}, ("cannot be changed", "lakebed.create")),
    ({"hoodie.datasource.write.partitionpath.field": "v"}, ("cannot be changed", "lakebed.create")),
    ({"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}, ("cannot be changed", "lakebed.create")),
    ({"hoodie.table.version": "8"}, ("cannot be changed", "upgrade")),
    ({"hoodie.table.name": None}, ("cannot be changed",)),
    ({"hoodie.bucket.index.num.buckets": 7}, ("cannot be changed", "adopt")),
    ({"hoodie.index.type": "SIMPLE"}, ("cannot be changed", "adopt")),
    ({"lakebed.index.bucket.count": 7}, ("cannot be changed", "adopt")),
    ({"hoodie.table.checksum": "1"}, ("cannot be changed",)),
    ({"hoodie.datasource.write.insert.drop.duplicates": True}, ("option of each read or write", "options=")),
    ({"hoodie.compact.inlin": True}, ("unknown setting", "id you mean hoodie.compact.inline")),
    ({"nothing.like.it": 1}, ("unknown setting", "options list")),
    ({"hoodie.compact.inline": "perhaps"}, ("hoodie.compact.inline",)),
    ({"hoodie.compact.inline.max.delta.commits": 0}, ("max.delta.commits",)),
    ({"hoodie.compact.inline": True, "hoodie.compact.schedule.inline": True}, ("both true",)),
    ({"hoodie.keep.max.commits": 6}, ("hoodie.keep.max.commits=6 is not above hoodie.keep.min.commits=20",)),
    ({"hoodie.keep.min.commits": 6, "hoodie.keep.max.commits": 6}, ("is not above",)),
    ({"hoodie.clean.partition.filter.selected": "a"}, ("hoodie.clean.incremental.enabled=false",)),
    ({"hoodie.compact.inline": True, "hoodie.index.type": "SIMPLE"}, ("cannot be changed",)),
    ({"hoodie.precommit.validators": "com.example.Mine"}, ("com.example.Mine, which is no", "SqlQueryEquality")),
    (validators("drop table <TABLE_NAME>"), ("can never be run", "it is not one SELECT")),
    (validators("select 1; drop table x#1"), ("not a query, one # and the expected value",)),
    (validators("select count(*) from <TABLE_NAME> as t, fares#0"), ("can never be run", "it reads fares")),
    (validators("selec count(*) from <TABLE_NAME>#0"), ("can never be run",)),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[str(list(given)) for given, _ in REFUSED])
def test_refused_settings_change_nothing(mor: Table, given: dict[str, Any], words: tuple[str, ...]) -> None:
    mor.upsert(rows((1, "a", "x", 1)))
    with refused(mor.uri, InvalidOption, *words):
        mor.configure(given)


def test_settings_that_belong_together_are_checked_at_create(make: Make) -> None:
    chosen = {"hoodie.clean.partition.filter.selected": "a"}
    with pytest.raises(InvalidOption, match=r"hoodie\.clean\.incremental\.enabled=false"):
        make(properties=chosen)
    with pytest.raises(InvalidOption, match="no validator of lakebed"):
        make(properties={"hoodie.precommit.validators": "com.example.Mine"})
    table = make(properties={**chosen, "hoodie.clean.incremental.enabled": False})
    assert table.properties["lakebed.clean.partition.filter.selected"] == "a"


def test_settings_that_belong_together_are_checked_together(mor: Table) -> None:
    mor.configure({"hoodie.keep.max.commits": 6, "hoodie.keep.min.commits": 4})
    mor.configure({"hoodie.keep.max.commits": 5})
    with refused(mor.uri, InvalidOption, "is not above"):
        mor.configure({"hoodie.keep.max.commits": 4})
    mor.configure({"hoodie.keep.min.commits": 40, "hoodie.keep.max.commits": 50})
    mor.configure({"hoodie.clean.incremental.enabled": False, "hoodie.clean.partition.filter.regex": "a.*"})
    shown = {name: mor.properties[name] for name in ("lakebed.keep.min.commits", "lakebed.keep.max.commits")}
    assert shown == {"lakebed.keep.min.commits": "40", "lakebed.keep.max.commits": "50"}
    mor.upsert(rows((1, "a", "x", 1)))
    assert mor.maintenance.clean().files == 0


def test_settings_that_lakebed_does_not_support_are_refused(mor: Table) -> None:
    with refused(mor.uri, UnsupportedFeature):
        mor.configure({"hoodie.avro.schema": "{}"})


def test_whether_there_is_a_metadata_table(make: Make) -> None:
    table = make(index="simple", properties={"hoodie.metadata.enable": False})
    assert table.configure({"hoodie.metadata.enable": True}).changes == {"hoodie.metadata.enable": ("false", None)}
    table.upsert(rows((1, "a", "x", 1)))
    assert "files" in table.indexes.verify().checked
    with refused(table.uri, InvalidOption, "has a metadata table"):
        table.configure({"hoodie.metadata.enable": False})


CDC, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("given", "mode"), [({CDC: True}, "DATA_BEFORE_AFTER"), ({MODE: "op_key_only", CDC: "true"}, "OP_KEY_ONLY")]
)
def test_a_change_log_from_now_on(make: Make, kind: str, given: dict[str, Any], mode: str) -> None:
    table = make(type=kind, index="bucket", buckets=1)
    table.upsert(rows((1, "a", "x", 1)))
    with pytest.raises(InvalidOption, match="keeps no change log"):
        table.cdc("0").to_arrow()
    start = table.upsert(rows((1, "a", "y", 2))).checkpoint
    assert table.configure(given).changes == {CDC: ("false", "true"), MODE: (None, mode)}
    table.upsert(rows((1, "a", "z", 3), (2, "b", "n", 3)))
    table.delete([2])
    found = sorted(
        (row["op"], (row["before"] or {}).get("v"), (row["after"] or {}).get("v"))
        for row in table.cdc(start).to_arrow().to_pylist()
    )
    assert found == [("d", "n", None), ("i", None, "n"), ("u", "y", "z")]
    if kind == "cow":  # what was written before cannot be told
        with pytest.raises(InvalidOption, match="logged no change"):
            table.cdc("0").to_arrow()
    # its mode stays, the log may end, and begin again
    with refused(table.uri, InvalidOption, "cannot be changed"):
        table.configure({MODE: "DATA_BEFORE"})
    assert table.configure({CDC: None}).changes == {CDC: ("true", "false")}
    with pytest.raises(InvalidOption, match="keeps no change log"):
        table.cdc(start).to_arrow()
    start = table.upsert(rows((1, "a", "unlogged", 4))).checkpoint
    assert table.configure({CDC: True}).changes == {CDC: ("false", "true")}
    table.upsert(rows((1, "a", "logged", 5)))
    (row,) = table.cdc(start).to_arrow().to_pylist()
    assert (row["op"], row["before"]["v"], row["after"]["v"]) == ("u", "unlogged", "logged")
    assert content(table) == [(1, "a", "logged", 5)]


def test_a_mode_is_of_a_change_log(mor: Table) -> None:
    with refused(mor.uri, InvalidOption, "no change log that could have a mode", CDC):
        mor.configure({MODE: "DATA_BEFORE"})
    with refused(mor.uri, InvalidOption, "DATA_BEFORE_AFTER"):
        mor.configure({CDC: True, MODE: "ALL"})


CLUSTERING: dict[str, Any] = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "7",
    "hoodie.clustering.async.enabled": "true",
    "hoodie.clustering.plan.strategy.sort.columns": "v,ts",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000",
    "hoodie.layout.optimize.strategy": "ZORDER",
    "hoodie.partition.ttl.inline": "true",
    "hoodie.partition.ttl.strategy.days.retain": "30",
    "hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME",
    "hoodie.partition.ttl.strategy.max.delete.partitions": "5",
    "hoodie.partition.ttl.strategy.partition.selected": "a,b",
}


def test_clustering_and_partition_ttl(make: Make) -> None:
    table = make(index="simple")
    before = dict(table.properties)
    table.configure(CLUSTERING)
    properties = dict(lakebed.open(table.uri).properties)
    assert properties == before | {key.replace("hoodie.", "lakebed.", 1): value for key, value in CLUSTERING.items()}
    settings = service_settings({}, properties)
    assert (settings.clustering.inline, settings.clustering.commits, settings.clustering.layout) == (True, 7, "ZORDER")
    assert (settings.clustering.sort_columns, settings.clustering.max_small_file_size) == (("v", "ts"), 1000)
    assert settings.partition_ttl == PartitionTtlSettings(True, "KEEP_BY_CREATION_TIME", 30, 5, ("a", "b"))
    table.configure(dict.fromkeys(CLUSTERING))
    assert dict(lakebed.open(table.uri).properties) == before


def test_clustering_is_run_by_it(make: Make) -> None:
    table = make(index="simple")
    apart = {"hoodie.parquet.small.file.limit": 0}
    table.insert(rows((1, "a", "x", 1)), options=apart)
    table.configure({"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2})
    assert [line.split()[0] for line in table.insert(rows((2, "a", "y", 1)), options=apart).services] == ["cluster"]
    assert table.files.to_arrow().num_rows == 1
    assert content(table) == [(1, "a", "x", 1), (2, "a", "y", 1)]


def test_settings_are_changed_under_the_table_lock(mor: Table) -> None:
    with default_lock(open_storage(mor.uri), wait_seconds=1), pytest.raises(LockTimeout):
        mor.configure({"hoodie.compact.inline": True}, options={"hoodie.write.lock.wait_time_ms": 200})
    assert mor.properties["lakebed.compact.inline"] == "false"


def test_whatever_is_struck_leaves_the_old_or_the_new_settings(mor: Table) -> None:
    struck = 0
    for mode in ("unacknowledged", "lost"):
        for at in range(1, 20):
            before = lakebed.open(mor.uri).properties["lakebed.compact.inline"]
            value = "true" if before == "false" else "false"
            with crash_at(at, mode) as crash:
                try:
                    lakebed.open(mor.uri).configure({"hoodie.compact.inline": value})
                except (Killed, lakebed.LakebedError):
                    allowed = {before, value}
                else:
                    allowed = {value}
            if not crash.fired:
                break
            struck += 1
            assert lakebed.open(mor.uri).properties["lakebed.compact.inline"] in allowed
            lakebed.open(mor.uri).configure({"hoodie.compact.inline": value})
            assert lakebed.open(mor.uri).properties["lakebed.compact.inline"] == value
    assert struck >= 6


def test_the_command_line_changes_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lakebed.create(uri, rows().schema, key="id", partition_by="city", ordering="ts", type="mor", index="bucket")
    assert invoke(["configure", uri, "hoodie.compact.inline=false", "--dry-run"]) == 0
    assert "nothing was done" in capsys.readouterr().out
    assert invoke(["configure", uri, "hoodie.compact.inline=false", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["after"] == "false"
    assert lakebed.open(uri).properties["lakebed.compact.inline"] == "false"
    assert invoke(["configure", uri, "--remove", "hoodie.compact.inline"]) == 0
    assert "lakebed.compact.inline" not in lakebed.open(uri).properties
    capsys.readouterr()
    assert invoke(["configure", uri]) == 2
    assert invoke(["configure", uri, "hoodie.index.type=SIMPLE"]) != 0
    assert "cannot be changed" in capsys.readouterr().err


def test_a_table_shows_its_properties_as_they_are_now(make: Make) -> None:
    table = make(index="bucket", buckets=2)
    table.upsert(rows((1, "a", "x", 1)))
    other = lakebed.open(table.uri)
    other.configure({"hoodie.clean.commits.retained": 3})
    assert table.properties["lakebed.clean.commits.retained"] == "3"
    table.maintenance.rescale(4)
    assert table.properties["lakebed.index.bucket.count"] == "4"
    table.indexes.use("simple")
    assert table.properties["lakebed.index.type"] == "simple"
