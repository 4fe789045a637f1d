"""The lock of a DynamoDB table, which real Hudi's writers share: items as Amazon's lock client makes them.

An item has its validity, and gets a new version each time it is prolonged. A waiting writer takes the item over if its
version stayed the same for its validity, measured by this host's clock: clocks of other hosts are not trusted.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from importlib import import_module
from typing import Any

from lakebed.concurrency.heartbeat import this_process
from lakebed.concurrency.lock import LeasedLock
from lakebed.errors import StorageError, UnsupportedFeature
from lakebed.storage.base import refused
from lakebed.storage.clocks import monotonic_seconds

_KEY, _OWNER, _LEASE, _VERSION, _RELEASED = "key", "ownerName", "leaseDuration", "recordVersionNumber", "isReleased"
_HEARD_SECONDS = 5.0
# Errors of the service after which a later request may succeed.
_SERVER_ERROR = 500
_BUSY = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
    }
)
# Less than the time that others wait: this host's clock may run a little slower than theirs.
_OF_THE_LEASE = 0.9

# By lock: the version that this process saw last, and since when. A new attempt continues the wait of an earlier one.
_seen: dict[str, tuple[str, float]] = {}


class DynamoDbLock(LeasedLock):
    """The item `key` of the table `table`, which is created if it is missing. Requires the package boto3; the
    credentials come from the environment."""

    def __init__(
        self,
        table: str,
        key: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        billing: str = "PAY_PER_REQUEST",
        lease_seconds: float = 60.0,
        wait_seconds: float = 60.0,
    ) -> None:
        super().__init__(f"dynamodb://{table}/{key}", wait_seconds)
        self._errors, self._client = _client(region, endpoint)
        self._table, self._key, self._billing = table, key, billing
        self._lease_seconds = lease_seconds
        self._version = ""

    @property
    def validity(self) -> float:
        return _OF_THE_LEASE * self._lease_seconds

    def _try(self) -> bool:
        with self._reported():
            item = self._read()
            if item is None:
                return self._put("attribute_not_exists(#k)", {})
            version = item.get(_VERSION, {}).get("S", "")
            # an own item is from a put that seemed lost: put it again, since others count from the first one
            if not self._is_mine(item) and _RELEASED not in item and not self._is_over(item, version):
                return False
            return self._put("#v = :v", {":v": {"S": version}})

    def _name(self) -> str:
        return f"{this_process()} {self._owner}"

    def _is_mine(self, item: dict[str, Any]) -> bool:
        return item.get(_OWNER, {}).get("S") == self._name()

    def _is_over(self, item: dict[str, Any], version: str) -> bool:
        now = monotonic_seconds()
        last_version, since = _seen.get(self.where, ("", now))
        if last_version != version:
            _seen[self.where] = (version, now)
            return False
        return now - since > float(item.get(_LEASE, {}).get("S") or 0) / 1000

    def _read(self) -> dict[str, Any] | None:
        try:
            response = self._client.get_item(TableName=self._table, Key={_KEY: {"S": self._key}}, ConsistentRead=True)
        except self._client.exceptions.ResourceNotFoundException:
            self._make_table()
            return None
        return response.get("Item")

    def _put(self, condition: str, values: dict[str, Any]) -> bool:
        self._version = str(uuid.uuid4())
        item = {
            _KEY: {"S": self._key},
            _OWNER: {"S": self._name()},
            _LEASE: {"S": str(int(self._lease_seconds * 1000))},
            _VERSION: {"S": self._version},
        }
        names = {"#k": _KEY} if "#k" in condition else {"#v": _VERSION}
        arguments: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                **arguments,
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return self._has_it()
        return True

    def _has_it(self) -> bool:
        """Whether the refused put took effect: an automatic retry of the client is refused if the first request had
        succeeded."""
        item = self._read()
        return item is not None and item.get(_VERSION, {}).get("S") == self._version

    def _prolong(self) -> bool:
        with self._reported():
            item = self._read()  # it is unknown whether an earlier request that failed took effect
            if item is None or not self._is_mine(item):
                return False
            return self._put("#v = :v", {":v": {"S": item.get(_VERSION, {}).get("S", "")}})

    def _let_go(self) -> None:
        if not self._version:
            return
        with contextlib.suppress(Exception):
            self._client.delete_item(
                TableName=self._table,
                Key={_KEY: {"S": self._key}},
                ConditionExpression="#o = :o",
                ExpressionAttributeNames={"#o": _OWNER},
                ExpressionAttributeValues={":o": {"S": self._name()}},
            )
        self._version = ""

    def _forget(self) -> None:
        super()._forget()
        self._version = ""

    def _holder(self) -> str:
        with contextlib.suppress(Exception):
            item = self._read()
            if item is not None:
                return str(item.get(_OWNER, {}).get("S"))
        return super()._holder()

    def _make_table(self) -> None:
        capacity = {"ProvisionedThroughput": {"ReadCapacityUnits": 20, "WriteCapacityUnits": 10}}
        with contextlib.suppress(self._client.exceptions.ResourceInUseException):  # another writer was faster
            self._client.create_table(
                TableName=self._table,
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                BillingMode=self._billing,
                **(capacity if self._billing == "PROVISIONED" else {}),
            )
        self._client.get_waiter("table_exists").wait(TableName=self._table)

    @contextlib.contextmanager
    def _reported(self) -> Generator[None]:
        try:
            yield
        except (self._errors.ClientError, self._errors.BotoCoreError) as error:
            answer = getattr(error, "response", {})
            refusal = answer.get("Error", {}).get("Code", "")
            is_fault = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_ERROR
            raise _unanswered(self.where, error, retryable=not refusal or refusal in _BUSY or is_fault) from error


def _unanswered(where: str, error: BaseException, *, retryable: bool) -> StorageError:
    return refused(
        f"the lock service does not answer: {where} ({type(error).__name__}: {error})"
        if retryable
        else f"the lock service refuses: {where} ({error})",
        "see that DynamoDB can be reached from here with the credentials of the environment, then run it again;"
        " nothing of this write is visible",
        url=where,
        retryable=retryable,
    )


def _client(region: str | None, endpoint: str | None) -> tuple[Any, Any]:
    try:
        import boto3

        botocore: Any = import_module("botocore")  # comes with it
        for part in ("config", "exceptions"):
            import_module(f"botocore.{part}")
    except ImportError as error:
        raise UnsupportedFeature(
            "the DynamoDB lock needs the package boto3", hint="pip install 'lakebed[dynamodb]'"
        ) from error
    config = botocore.config.Config(
        connect_timeout=_HEARD_SECONDS, read_timeout=_HEARD_SECONDS, retries={"max_attempts": 2, "mode": "standard"}
    )
    client: Any = boto3.client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)
    return botocore.exceptions, client
