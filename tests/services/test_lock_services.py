"""The suite of all locks over those of services, and tables that are written under them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.dynamodb import DynamoDbLock
from lakebed.concurrency.hive import HiveMetastoreLock, _seconds
from lakebed.concurrency.zookeeper import ZooKeeperLock
from lakebed.errors import CommitConflict, InvalidOption, LockTimeout, StorageError
from support.crash_tables import leftovers
from support.lock_contract import SECONDS, LockContract, QueuedLockContract
from support.sampling import CRASH, whole

from .hive_metastore import LOCK_SECONDS, HiveMetastore
from .s3_server import ACCESS_KEY, REGION, S3, SECRET_KEY
from .service import HOST, ServiceError, free_ports
from .zookeeper_server import ZooKeeper


@pytest.fixture(scope="module", autouse=True)
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    """The endpoint of a server."""
    with running(S3()) as info:
        yield info["endpoint"]


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[str]:
    """The hosts of an ensemble."""
    with running(ZooKeeper()) as info:
        yield info["hosts"]


@pytest.fixture(scope="module")
def hive() -> Iterator[str]:
    """The URI of a metastore."""
    with running(HiveMetastore()) as info:
        yield info["uris"]


@contextlib.contextmanager
def running(service: Any) -> Iterator[dict[str, Any]]:
    try:
        service.start()
    except ServiceError as error:
        pytest.skip(str(error))
    try:
        yield service.info
    finally:
        service.stop()


@contextmanager
def failing_put(
    lock: Any, *, is_done: bool, code: str = "InternalServerError", versions: list[str] | None = None, status: int = 500
) -> Iterator[None]:
    """The first request that changes the lock's item ends in an error, done or not; `versions` get all that it tried
    to write."""
    put, failed = lock._client.put_item, list[bool]()

    def answered(**request: Any) -> Any:
        if versions is not None:
            versions.append(request["Item"]["recordVersionNumber"]["S"])
        if failed:
            return put(**request)
        failed.append(True)
        if is_done:
            put(**request)
        about = {"Error": {"Code": code, "Message": "as planned"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise lock._errors.ClientError(about, "PutItem")

    lock._client.put_item = answered
    try:
        yield
    finally:
        lock._client.put_item = put


class TestDynamoDb(LockContract):
    """Amazon's, by moto."""

    @pytest.fixture(autouse=True)
    def _where(self, dynamodb: str) -> None:
        self.endpoint, self.key = dynamodb, uuid.uuid4().hex

    def code(self) -> str:
        where = f"region={REGION!r}, endpoint={self.endpoint!r}, lease_seconds={SECONDS}, wait_seconds=60.0"
        return f"DynamoDbLock('locks', {self.key!r}, {where})"

    def steal(self) -> None:
        client = DynamoDbLock("locks", self.key, region=REGION, endpoint=self.endpoint)._client
        item = client.get_item(TableName="locks", Key={"key": {"S": self.key}})["Item"]
        assert item["leaseDuration"] == {"S": "3000"}
        stolen = {"ownerName": {"S": "someone"}, "recordVersionNumber": {"S": "theirs"}, "isReleased": {"S": "1"}}
        client.put_item(TableName="locks", Item=item | stolen)

    def unanswered(self) -> DynamoDbLock:
        (port,) = free_ports(1)
        return DynamoDbLock("locks", self.key, region=REGION, endpoint=f"http://{HOST}:{port}")

    def test_a_renewal_that_was_refused_once_does_not_lose_the_lock(self) -> None:
        with self.make() as lock:
            with failing_put(lock, is_done=False, code="ProvisionedThroughputExceededException", status=400):
                assert lock.renew()
            assert lock.renew()
            assert lock.lock_is_held()
            with failing_put(lock, is_done=True):
                assert lock.renew()
            assert lock.renew()
            with failing_put(lock, is_done=False):
                assert lock.renew()
            with pytest.raises(LockTimeout):
                self.make().acquire(0.2)
        with self.make() as other:  # it was given back, whatever version it had
            assert other.lock_is_held()

    def test_the_time_of_a_lock_counts_from_a_request_that_was_answered(self) -> None:
        lock = self.make()
        versions: list[str] = []
        with failing_put(lock, is_done=True, versions=versions), lock:
            assert len(set(versions)) == 2
            item = lock._client.get_item(TableName="locks", Key={"key": {"S": self.key}})["Item"]
            assert item["recordVersionNumber"]["S"] == versions[-1]

    def test_an_item_of_amazons_client_is_respected(self) -> None:
        """As `AmazonDynamoDBLockClient` writes it, which real Hudi uses."""
        with self.make():
            pass
        client = DynamoDbLock("locks", self.key, region=REGION, endpoint=self.endpoint)._client
        item = {
            "key": {"S": self.key},
            "ownerName": {"S": "java"},
            "leaseDuration": {"S": "2000"},
            "recordVersionNumber": {"S": str(uuid.uuid4())},
        }
        client.put_item(TableName="locks", Item=item)
        with pytest.raises(LockTimeout, match="is held by java"):
            self.make().acquire(0.5)
        with self.make() as lock:  # the version stayed the same for as long as it says
            assert lock.lock_is_held()


class TestZooKeeper(QueuedLockContract):
    @pytest.fixture(autouse=True)
    def _where(self, zookeeper: str) -> None:
        self.hosts, self.path = zookeeper, f"/hudi/{uuid.uuid4().hex}"

    def code(self) -> str:
        return f"ZooKeeperLock({self.hosts!r}, {self.path!r}, session_seconds={SECONDS}, wait_seconds=60.0)"

    def steal(self) -> None:
        with self._client() as client:
            for name in client.get_children(self.path):
                client.delete(f"{self.path}/{name}")

    def unanswered(self) -> ZooKeeperLock:
        (port,) = free_ports(1)
        return ZooKeeperLock(f"{HOST}:{port}", self.path, connection_seconds=0.5)

    def test_a_node_of_curator_is_respected(self) -> None:
        """As Curator's `InterProcessMutex` makes it, which real Hudi uses."""
        with self._client() as client:
            client.ensure_path(self.path)
            node = client.create(f"{self.path}/_c_{uuid.uuid4()}-lock-", ephemeral=True, sequence=True)
            with pytest.raises(LockTimeout, match="is held by _c_"):
                self.make().acquire(0.5)
            client.delete(node)
        with self.make() as lock:
            assert lock.lock_is_held()
            with self._client() as client:
                (own,) = client.get_children(self.path)
            assert own.startswith("_c_")
            assert "-lock-" in own

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        import kazoo.client

        client = kazoo.client.KazooClient(hosts=self.hosts)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


class TestHive(QueuedLockContract):
    @pytest.fixture(autouse=True)
    def _where(self, hive: str) -> None:
        self.uris, self.table = hive, f"t{uuid.uuid4().hex}"

    def code(self) -> str:
        return f"HiveMetastoreLock({self.uris!r}, 'default', {self.table!r}, wait_seconds=60.0)"

    def steal(self) -> None:
        types, client = self._client()
        for lock in client.show_locks(types.ShowLocksRequest(dbname="default", tablename=self.table)).locks:
            client.unlock(types.UnlockRequest(lockid=lock.lockid))

    def unanswered(self) -> HiveMetastoreLock:
        (port,) = free_ports(1)
        return HiveMetastoreLock(f"thrift://{HOST}:{port}", "default", self.table, connection_seconds=0.5)

    def test_a_lock_of_real_hudis_client_is_respected(self) -> None:
        """As its `HiveMetastoreBasedLockProvider` asks for it."""
        types, client = self._client()
        part = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname="default",
            tablename=self.table,
            operationType=types.DataOperationType.NO_TXN,  # a server of tests wants to be told
        )
        asked = types.LockRequest(component=[part], user="hudi", hostname="java")
        assert client.lock(asked).state == types.LockState.ACQUIRED
        with pytest.raises(LockTimeout, match="is held by hudi on java"):
            self.make().acquire(0.5)
        with self.make() as lock:  # nobody sends heartbeats for it
            assert lock.lock_is_held()
            assert client.lock(asked).state == types.LockState.WAITING

    def test_a_waiter_that_gave_up_does_not_block_the_next_one(self) -> None:
        with self.make() as held:
            _, told = self._process("make().acquire(0.2)").communicate(timeout=60)
            assert "LockTimeout" in told
            types, client = self._client()
            asked = types.ShowLocksRequest(dbname="default", tablename=self.table)
            assert len(client.show_locks(asked).locks) == 1
            assert held.validity == pytest.approx(0.9 * LOCK_SECONDS)
        assert client.show_locks(asked).locks == []

    def test_the_first_address_that_answers_is_taken(self) -> None:
        (port,) = free_ports(1)
        with HiveMetastoreLock(f"thrift://{HOST}:{port},{self.uris}", "default", self.table) as lock:
            assert lock.lock_is_held()

    def _client(self) -> tuple[Any, Any]:
        connection = HiveMetastoreLock(self.uris, "default", self.table)._hive
        return connection.types, connection.connected()


@pytest.mark.parametrize(
    ("text", "seconds"), [("300s", 300), ("1500ms", 1.5), ("20", 20), ("5 min", 300), ("never", 300), ("", 300)]
)
def test_lengths_of_time_as_hive_writes_them(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


# tables

_WRITER = """
import json, sys, pyarrow as pa, lakebed
from lakebed.errors import LakebedError
uri, first, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
for n in range(int(sys.argv[4])):
    while True:
        try:
            lakebed.open(uri).upsert(pa.table({"id": [first + n, 0], "v": [first, first + n]}), options=options)
            break
        except LakebedError as error:
            if not error.retryable:
                raise
"""


SERVICES = ("dynamodb", "zookeeper", "hive")
# Processes, and commits of each.
PROCESSES, COMMITS = (8, 50) if whole(CRASH) else (3, 4)


@pytest.fixture(params=SERVICES)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return options_of(request.param, request)


@pytest.fixture(params=["storage", "file system", *SERVICES])
def every_lock(request: pytest.FixtureRequest) -> dict[str, Any]:
    return options_of(request.param, request)


def options_of(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    prefix = "hoodie.write.lock"
    common = {f"{prefix}.wait_time_ms": 60_000, "lakebed.write.tasks": 1}
    if kind == "storage":
        return common
    if kind == "file system":
        return common | {f"{prefix}.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"}
    where: str = request.getfixturevalue(kind)
    if kind == "dynamodb":
        return common | {
            f"{prefix}.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
            f"{prefix}.dynamodb.table": "tables",
            f"{prefix}.dynamodb.partition_key": uuid.uuid4().hex,
            f"{prefix}.dynamodb.region": REGION,
            f"{prefix}.dynamodb.endpoint_url": where,
        }
    if kind == "hive":
        return common | {
            f"{prefix}.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            f"{prefix}.hivemetastore.uris": where,
            f"{prefix}.hivemetastore.database": "default",
            f"{prefix}.hivemetastore.table": f"t{uuid.uuid4().hex}",
        }
    return common | {
        f"{prefix}.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        f"{prefix}.zookeeper.url": where.partition(":")[0],
        f"{prefix}.zookeeper.port": where.partition(":")[2],
        f"{prefix}.zookeeper.base_path": "/locks",
        f"{prefix}.zookeeper.lock_key": uuid.uuid4().hex,
    }


def new_table(folder: Path) -> str:
    uri = str(folder / "t")
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    lakebed.create(uri, schema, key="id", index="bucket", buckets=1)
    return uri


def test_processes_write_one_table(every_lock: dict[str, Any], tmp_path: Path) -> None:
    """Eight with fifty commits each, where `LAKEBED_CRASH=all` says so."""
    import json

    uri, firsts = new_table(tmp_path), [100 * (n + 1) for n in range(PROCESSES)]
    command = [sys.executable, "-c", _WRITER, uri]
    writers = [
        subprocess.Popen(
            [*command, str(first), json.dumps(every_lock), str(COMMITS)], stderr=subprocess.PIPE, text=True
        )
        for first in firsts
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=1200)
        assert writer.returncode == 0, err
    rows = dict(zip(*lakebed.open(uri).scan().to_arrow().select(["id", "v"]).to_pydict().values(), strict=True))
    assert rows.pop(0) in [first + COMMITS - 1 for first in firsts]
    assert rows == {first + n: first for first in firsts for n in range(COMMITS)}
    lakebed.open(uri).maintenance.clean()
    # archived instants, and what locks lie in
    known = (".hoodie/timeline/history/", ".hoodie/.lock")
    assert [path for path in leftovers(uri) if not path.startswith(known)] == []
    assert lakebed.open(uri).indexes.verify().ok


def test_a_lost_lease_is_noticed_before_the_commit(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = new_table(tmp_path)
    table = lakebed.open(uri)
    table.upsert(pa.table({"id": [1], "v": [1]}), options=options)
    kinds = {"dynamodb.table": DynamoDbLock, "zookeeper.url": ZooKeeperLock, "hivemetastore.uris": HiveMetastoreLock}
    (kind,) = (kind for key, kind in kinds.items() if f"hoodie.write.lock.{key}" in options)
    monkeypatch.setattr(kind, "lock_is_held", lambda self: False)
    with pytest.raises(CommitConflict, match="the table lock was lost"):
        table.upsert(pa.table({"id": [1], "v": [2]}), options=options)
    monkeypatch.undo()
    assert lakebed.open(uri).scan().to_arrow()["v"].to_pylist() == [1]


def test_a_service_that_is_down_stops_a_write(options: dict[str, Any], tmp_path: Path) -> None:
    uri = new_table(tmp_path)
    (port,) = free_ports(1)
    changed = {"hoodie.write.lock.zookeeper.port": port, "hoodie.write.lock.zookeeper.connection_timeout_ms": 300}
    if "hoodie.write.lock.dynamodb.table" in options:
        changed = {"hoodie.write.lock.dynamodb.endpoint_url": f"http://{HOST}:{port}"}
    if "hoodie.write.lock.hivemetastore.uris" in options:
        changed = {"hoodie.write.lock.hivemetastore.uris": f"thrift://{HOST}:{port}"}
    with pytest.raises(StorageError, match="the lock service does not answer"):
        lakebed.open(uri).upsert(
            pa.table({"id": [1], "v": [1]}), options=options | changed | {"hoodie.write.lock.wait_time_ms": 100}
        )
    assert lakebed.open(uri).scan().count() == 0


def test_settings_that_lack_something_are_refused(tmp_path: Path) -> None:
    provider = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
    with pytest.raises(InvalidOption, match=r"needs hoodie\.write\.lock\.zookeeper\.url"):
        lakebed.open(new_table(tmp_path)).upsert(
            pa.table({"id": [1], "v": [1]}), options={"hoodie.write.lock.provider": provider}
        )
