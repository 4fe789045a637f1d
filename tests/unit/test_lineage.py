"""Events of OpenLineage as its own client writes them into a file: one line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import lakebed
from lakebed import lineage
from lakebed.errors import LakebedError
from lakebed.lineage import Dataset

pytest.importorskip("openlineage.client")

ROWS = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Gives the events that were sent since the last call."""
    log = tmp_path / "events.jsonl"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(log))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "nightly")
    lineage._client.cache_clear()  # pyright: ignore[reportPrivateUsage]

    def sent() -> list[dict[str, Any]]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    yield sent  # pyright: ignore[reportReturnType]
    lineage._client.cache_clear()  # pyright: ignore[reportPrivateUsage]


def brief(event: dict[str, Any]) -> tuple[str, str, list[str], list[str]]:
    """The state, the job, and the names of the inputs and outputs of an event."""
    names = [[dataset["name"] for dataset in event[side]] for side in ("inputs", "outputs")]
    return event["eventType"], event["job"]["name"], names[0], names[1]


@pytest.mark.parametrize(
    ("uri", "dataset"),
    [
        ("/data/orders/", ("file", "/data/orders")),
        ("/", ("file", "/")),
        ("file:///data/orders", ("file", "/data/orders")),
        ("s3://lake/sales/orders", ("s3://lake", "sales/orders")),
        ("s3a://lake/sales/orders/", ("s3://lake", "sales/orders")),
        ("s3://lake", ("s3://lake", "/")),
        ("gs://lake/orders", ("gs://lake", "orders")),
        ("abfss://data@account.dfs.core.windows.net/orders", ("abfss://data@account.dfs.core.windows.net", "orders")),
        ("hdfs://name:8020/data/orders", ("hdfs://name:8020", "/data/orders")),
        ("kafka://broker:9092/trips", ("kafka://broker:9092", "trips")),
    ],
)
def test_datasets_have_the_names_that_openlineage_gives_them(uri: str, dataset: tuple[str, str]) -> None:
    assert Dataset.of(uri) == dataset


def test_a_write_is_a_run_with_its_table_counts_and_notes(events: Any, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "trips"), ROWS.schema, key="id")
    result = table.upsert(ROWS, message="first load", metadata={"ticket": "OPS-7"})
    start, end = events()
    uri = str(tmp_path / "trips")
    assert [brief(event) for event in (start, end)] == [
        ("START", "trips.upsert", [], [uri]),
        ("COMPLETE", "trips.upsert", [], [uri]),
    ]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"]["namespace"] == "nightly"
    assert end["outputs"][0]["namespace"] == "file"
    facets = end["outputs"][0]["facets"]
    assert facets["version"]["datasetVersion"] == result.instant
    columns = [(field["name"], field["type"]) for field in facets["schema"]["fields"]]
    assert columns == [("id", "int64"), ("city", "string")]
    statistics = end["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"], statistics["size"]) == (2, 1, result.bytes)
    tags = {tag["key"]: tag["value"] for tag in end["run"]["facets"]["tags"]["tags"] if tag["source"] == "lakebed"}
    assert tags == {"message": "first load", "ticket": "OPS-7"}
    assert end["run"]["facets"]["processing_engine"]["name"] == "lakebed"


def test_inputs_are_the_files_and_tables_whose_rows_are_written(events: Any, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(ROWS, tmp_path / "trips.csv")
    bronze = lakebed.create(str(tmp_path / "bronze"), ROWS.schema, key="id")
    bronze.upsert(str(tmp_path / "trips.csv"))
    silver = lakebed.create(str(tmp_path / "silver"), ROWS.schema, key="id")
    silver.upsert(bronze.scan(where="id = 1"))
    silver.upsert(bronze.to_pandas())
    silver.upsert(bronze.changes("000").to_arrow())
    silver.upsert(ROWS)
    ends = [brief(event)[1:3] for event in events() if event["eventType"] == "COMPLETE"]
    source = str(tmp_path / "bronze")
    assert ends == [
        ("bronze.upsert", [str(tmp_path / "trips.csv")]),
        ("silver.upsert", [source]),
        ("silver.upsert", [source]),
        ("silver.upsert", [source]),
        ("silver.upsert", []),
    ]


def test_a_statement_names_the_tables_that_it_reads(events: Any, tmp_path: Path) -> None:
    orders = lakebed.create(str(tmp_path / "orders"), ROWS.schema, key="id")
    new = lakebed.create(str(tmp_path / "new"), ROWS.schema, key="id")
    new.upsert(ROWS)
    events()
    tables = {"orders": orders, "new": new}
    lakebed.sql("insert into orders select * from new", tables=tables)
    lakebed.sql(
        "merge into orders using new on orders.id = new.id when matched then update set *"
        " when not matched then insert *",
        tables=tables,
    )
    lakebed.sql("update orders set city = 'Bonn' where id = 1", tables=tables)
    ends = [brief(event) for event in events() if event["eventType"] == "COMPLETE"]
    assert [end[2:] for end in ends[:2]] == [([new.uri], [orders.uri])] * 2
    assert ends[1][1] == "orders.merge"
    assert ends[2][1:] == ("orders.update", [], [orders.uri])


def test_a_service_reads_and_writes_its_table(events: Any, tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), ROWS.schema, key="id", type="mor", properties={"hoodie.compact.inline": False}
    )
    table.upsert(ROWS)
    table.upsert(ROWS)
    events()
    run = table.maintenance.compact().runs[0]
    start, end = events()
    assert brief(start) == ("START", "t.compact", [table.uri], [table.uri])
    assert brief(end) == ("COMPLETE", "t.compact", [table.uri], [table.uri])
    assert end["outputs"][0]["facets"]["version"]["datasetVersion"] == run.instant


def test_a_round_of_ingestion_reads_its_source(events: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pyarrow.csv.write_csv(ROWS, tmp_path / "in" / "trips.csv")
    source = {"kind": "files", "path": str(tmp_path / "in")}
    lakebed.ingest({"source": source, "target": {"uri": str(tmp_path / "t"), "create": {"key": "id"}}}, once=True)
    ends = [brief(event)[2:] for event in events() if event["eventType"] == "COMPLETE"]
    assert ends == [([str(tmp_path / "in")], [str(tmp_path / "t")])]


def test_an_error_ends_its_run_and_hides_secrets(events: Any, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id")
    with pytest.raises(LakebedError):
        table.upsert(pa.table({"other": ["https://user:pw@host/"]}))
    start, end = events()
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    error = end["run"]["facets"]["errorMessage"]
    assert "id" in error["message"]
    assert "pw" not in json.dumps(end)


def test_a_batch_that_the_table_has_gives_no_output(events: Any, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id")
    for _ in range(2):
        table.upsert(ROWS, once=lakebed.Once("stream", 1))
    ends = [brief(event)[3] for event in events() if event["eventType"] == "COMPLETE"]
    assert ends == [[table.uri], []]


def test_a_stage_is_reported_as_it_commits(events: Any, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id")
    with table.stage() as staged:
        staged.upsert(ROWS)
    assert events() == []
    with table.stage() as staged:
        staged.upsert(ROWS, message="looked at")
        result = staged.commit()
    start, end = events()
    assert (brief(start)[:2], brief(end)[:2]) == (("START", "t.upsert"), ("COMPLETE", "t.upsert"))
    assert end["outputs"][0]["facets"]["version"]["datasetVersion"] == result.instant
    assert "looked at" in [tag["value"] for tag in end["run"]["facets"]["tags"]["tags"]]


def test_a_parent_run_is_named(events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = "019ecf5e-0000-7000-8000-000000000001"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/dag.task/{run_id}")
    lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id").upsert(ROWS)
    parent = events()[-1]["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"]) == (
        "airflow",
        "dag.task",
        run_id,
    )


@pytest.mark.parametrize("parent", ["no run", "a/b/no-uuid"])
def test_a_receiver_that_fails_fails_no_write(
    parent: str, events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", parent)
    if parent == "no run":
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path / "no folder" / "events"))
    table = lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id")
    assert table.upsert(ROWS).inserted == 2
    assert "OpenLineage got no START of t.upsert" in caplog.text


def test_nothing_is_sent_where_it_is_switched_off(events: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not lineage.is_active()
    lakebed.create(str(tmp_path / "t"), ROWS.schema, key="id").upsert(ROWS)
    assert events() == []
