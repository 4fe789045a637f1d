"""The storage contract on a real S3 server, and what only an object store has: conditions, markers, doubt, secrets."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from lakebed.concurrency.lock import FileLock, default_lock
from lakebed.errors import CorruptFile, LockTimeout, StorageError
from lakebed.model import LOCK_FILE
from lakebed.storage import Storage, open_storage
from lakebed.testing import FaultPlan, FaultyStorage, Killed
from support.processes import wait_for

from ..unit.storage.test_storage_contract import TestStorageContract, paths
from .s3_server import S3
from .service import ServiceError

__all__ = ["TestStorageContract"]


@pytest.fixture(scope="module")
def s3() -> Generator[dict[str, Any]]:
    try:
        server = S3().start()
    except ServiceError as error:
        unavailable(str(error))
    yield server.info
    server.stop()


@pytest.fixture
def storage(s3: dict[str, Any]) -> Storage:
    return open_storage(f"s3://lake/{uuid.uuid4().hex}/table", s3["options"])


def client(s3: dict[str, Any]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=s3["endpoint"],
        aws_access_key_id=s3["access_key"],
        aws_secret_access_key=s3["secret_key"],
        region_name=s3["region"],
    )


def test_hadoop_names_and_s3a_open_the_same_table(s3: dict[str, Any]) -> None:
    one = open_storage("s3://lake/same", s3["options"])
    other = open_storage("s3a://lake/same/", s3["hadoop"])
    spark = open_storage("s3a://lake/same", s3["spark"])
    one.write("x", b"1")
    assert other.read("x") == spark.read("x") == b"1"
    assert one.spec.uri == other.spec.uri == "s3://lake/same"
    assert one.url("a/b") == "s3a://lake/same/a/b"


def test_blobs_are_read_with_the_storage_options_of_the_table(s3: dict[str, Any], tmp_path: Path) -> None:
    data = bytes(range(200))
    folder = f"s3://lake/blobs/{uuid.uuid4().hex}"
    open_storage(folder, s3["options"]).write("all.bin", data)
    schema = pa.schema([("id", pa.string()), ("pic", lakebed.BLOB)])
    paths = [f"{folder}/all.bin", f"{folder}/all.bin".replace("s3:", "s3a:"), f"{folder}/all.bin"]
    pics = lakebed.blob(path=paths, offset=[0, 150, 20], length=[5, None, 10])
    for uri in (f"{folder}/table", str(tmp_path / "table")):
        table = lakebed.create(uri, schema, key="id", storage_options=s3["options"])
        table.upsert(pa.table({"id": ["a", "b", "c"], "pic": pics}))
        assert list(table.read_blob(["c", "b", "a"], "pic")) == [data[20:30], data[150:], data[:5]]
        result: Any = lakebed.sql("select read_blob(pic) as b from t where id = 'b'", tables={"t": table})
        assert result.to_pylist() == [{"b": data[150:]}]
        report = table.blobs.references(folder)
        assert (f"{folder}/all.bin", 3, 200) in [(file.path, file.references, file.bytes) for file in report]
        for path, length in ((f"{folder}/none.bin", 3), (f"{folder}/all.bin", 201), (f"{folder}/none.bin", None)):
            table.upsert([{"id": "a", "pic": lakebed.blob(path=path, length=length)}])
            with pytest.raises(CorruptFile, match=f"row 'a' .*{path}"):
                list(table.read_blob(["a"], "pic"))


def test_keys_are_stored_as_they_are(s3: dict[str, Any]) -> None:
    open_storage("s3://lake/raw", s3["options"]).write("d=a%2Fb c/é#1", b"1")
    found = client(s3).list_objects_v2(Bucket="lake", Prefix="raw/")["Contents"]
    assert [entry["Key"] for entry in found] == ["raw/d=a%2Fb c/é#1"]


def test_hadoop_folder_markers_are_no_files(s3: dict[str, Any]) -> None:
    raw = client(s3)
    for key in ("marked/", "marked/p/", "marked/p/file", "marked/empty/"):
        raw.put_object(Bucket="lake", Key=key, Body=b"1" if key.endswith("file") else b"")
    storage = open_storage("s3://lake/marked", s3["options"])
    assert paths(storage) == ["p/file"]
    assert paths(storage, "p", recursive=False) == ["p/file"]
    assert paths(storage, "empty") == paths(storage, recursive=False) == []
    assert list(storage.list_folders()) == ["empty", "p"]
    storage.delete_folder("p")
    storage.write("no-extension", b"")
    assert paths(storage) == ["no-extension"]


def test_a_large_file_goes_in_parts(s3: dict[str, Any]) -> None:
    storage = open_storage("s3://lake/large", {**s3["options"], "upload_part": str(5 << 20)})
    data = bytes(range(256)) * (13 << 12)
    with storage.create("f") as upload:
        for start in range(0, len(data), 1 << 20):
            upload.write(data[start : start + (1 << 20)])
    assert storage.read("f") == data
    assert client(s3).head_object(Bucket="lake", Key="large/f")["ETag"].endswith('-3"')


@pytest.mark.rest
def test_more_objects_than_a_page_are_listed_and_deleted(s3: dict[str, Any]) -> None:
    storage = open_storage("s3://lake/many", s3["options"])
    raw = client(s3)
    for number in range(1100):
        raw.put_object(Bucket="lake", Key=f"many/p/{number:04}", Body=b"")
    assert len(paths(storage)) == 1100
    storage.delete_folder("p")
    assert paths(storage) == []


def test_refusals_name_the_object_and_no_secret(s3: dict[str, Any]) -> None:
    storage = open_storage("s3://no-such-bucket/t", s3["options"])
    for call in (
        lambda: storage.put_if_absent("x", b"1"),
        lambda: storage.put_if_match("x", b"1", json.dumps({"e_tag": '"1"'})),
        lambda: storage.write("x", b"1"),
        lambda: storage.read("x"),
    ):
        with pytest.raises(StorageError, match="no bucket no-such-bucket") as error:
            call()
        assert "s3a://no-such-bucket/t/x" in str(error.value)
    for text in (str(error.value), repr(storage), repr(storage.spec), storage.url("x"), error.value.to_json()):
        assert s3["secret_key"] not in text


def test_the_table_lock_counts_exactly(storage: Storage) -> None:
    storage.write("n", b"0")

    def add() -> None:
        for _ in range(4):
            with FileLock(storage, wait_seconds=120):
                storage.write("n", str(int(storage.read("n")) + 1).encode())

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.read("n") == b"12"
    wait_for(lambda: json.loads(storage.read(LOCK_FILE))["expired"] is True)


def test_the_table_lock_is_taken_from_the_dead_only(storage: Storage) -> None:
    with default_lock(storage) as lock:
        assert lock.renew()
        with pytest.raises(LockTimeout), default_lock(storage, wait_seconds=0):
            pass
    faulty = FaultyStorage(storage, FaultPlan(2, "kill"))
    killed = default_lock(faulty)
    killed.acquire(0)
    with pytest.raises(Killed):
        killed.release()
    with default_lock(storage, wait_seconds=0) as lock:
        assert lock.lock_is_held()
