"""The data catalog of AWS Glue."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lakebed.catalog.base import EntryName, missing_package, unanswered
from lakebed.catalog.metastore import EXTERNAL_TABLE, Column, Entry, Values, chunks
from lakebed.config.settings import CatalogSettings

# Limits of Glue for one request.
_READ, _CHANGED, _DELETED = 1000, 100, 25
_ABSENT, _EXISTS = "EntityNotFoundException", "AlreadyExistsException"
# Parts of a table that Glue gives and takes.
_TAKEN = (
    *("Description", "Owner", "Retention", "ViewOriginalText", "ViewExpandedText", "TargetTable"),
    *("LastAccessTime", "LastAnalyzedTime", "PartitionKeys", "TableType"),
)


@dataclass(frozen=True, slots=True)
class _PartitionChange:
    """A kind of request to Glue that takes up to `limit` partitions in `argument`; the error `ignored` for one
    partition is not a failure."""

    doing: str
    request: str
    argument: str
    limit: int
    ignored: str


_ADD = _PartitionChange("add partitions to", "batch_create_partition", "PartitionInputList", _CHANGED, _EXISTS)
_MOVE = _PartitionChange("change partitions of", "batch_update_partition", "Entries", _CHANGED, _ABSENT)
_DROP = _PartitionChange("drop partitions of", "batch_delete_partition", "PartitionsToDelete", _DELETED, _ABSENT)


class GlueCatalog:
    """The catalog of the account whose credentials are in the environment, in `region` or the environment's region.
    Requires the package boto3."""

    def __init__(self, region: str, endpoint: str, settings: CatalogSettings) -> None:
        try:
            boto3: Any = import_module("boto3")
            config: Any = import_module("botocore.config").Config
            self._errors: Any = import_module("botocore.exceptions")
        except ImportError as error:
            raise missing_package("AWS Glue as catalog", "boto3", "glue") from error
        self._skip_archive = settings.skip_archive
        self._uri = f"glue://{region}"
        limits = config(
            connect_timeout=settings.seconds, read_timeout=settings.seconds, retries={"total_max_attempts": 2}
        )
        named = {"region_name": region or None, "endpoint_url": endpoint or None}
        with self._asking("connect"):
            self._glue: Any = boto3.client("glue", config=limits, **named)

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        return self._uri

    def close(self) -> None:
        """Close the connections to the metastore."""
        with contextlib.suppress(Exception):
            self._glue.close()

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        with self._asking(f"look up the database {database}"):
            return self._found(lambda: self._glue.get_database(Name=database)) is not None

    def create_database(self, database: str) -> None:
        """Create a database, unless it exists."""
        with self._asking(f"create the database {database}", ignored=_EXISTS):
            self._glue.create_database(DatabaseInput={"Name": database, "Description": "created by lakebed"})

    def databases(self) -> Sequence[str]:
        """The names of the databases."""
        names: list[str] = []
        with self._asking("list the databases"):
            for page in self._glue.get_paginator("get_databases").paginate():
                names += [database["Name"] for database in page["DatabaseList"]]
        return names

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of a database."""
        names: list[str] = []
        with self._asking(f"list the tables of {database}"):
            for page in self._glue.get_paginator("get_tables").paginate(DatabaseName=database):
                names += [table["Name"] for table in page["TableList"]]
        return names

    def delete(self, entry: Entry) -> None:
        """Delete the entry, if it exists. The table's files stay."""
        with self._asking(f"drop {entry.name}", ignored=_ABSENT):
            self._glue.delete_table(DatabaseName=entry.name.database, Name=entry.name.table)

    def find(self, name: EntryName) -> Entry | None:
        """The entry of this name; None if there is none."""
        with self._asking(f"look up {name}"):
            answer = self._found(lambda: self._glue.get_table(DatabaseName=name.database, Name=name.table))
        return None if answer is None else _entry(name, answer["Table"])

    def create(self, entry: Entry) -> None:
        """Create an entry, unless another process has created it meanwhile."""
        table = {"TableType": EXTERNAL_TABLE, "PartitionKeys": _described(entry.partition_columns)}
        with self._asking(f"create {entry.name}", ignored=_EXISTS):
            self._glue.create_table(DatabaseName=entry.name.database, TableInput=_filled(table, entry))

    def update(self, entry: Entry, *, cascade: bool) -> None:
        """Write the entry in place of `entry.stored`; with `cascade` the columns of its partitions as well. Partitions
        are changed first: if that fails, the entry still has its old columns, so the next sync repeats it."""
        if cascade:
            self.move_partitions(entry, self.partitions(entry))
        fields = {key: value for key, value in entry.stored.items() if key in _TAKEN}
        with self._asking(f"change {entry.name}"):
            self._glue.update_table(
                DatabaseName=entry.name.database,
                TableInput=_filled({**fields, "StorageDescriptor": entry.stored["StorageDescriptor"]}, entry),
                SkipArchive=self._skip_archive,
            )

    def partitions(self, entry: Entry, values: Collection[Values] | None = None) -> Mapping[Values, str]:
        """The locations, by values, of all partitions of the entry, or of the existing ones with these values."""
        partitions: list[Any] = []
        with self._asking(f"list the partitions of {entry.name}"):
            if values is None:
                pages = self._glue.get_paginator("get_partitions")
                for page in pages.paginate(**_named(entry), ExcludeColumnSchema=True):
                    partitions += page["Partitions"]
            else:
                for chunk in chunks(values, _READ):
                    listed = [{"Values": list(partition_values)} for partition_values in chunk]
                    answer = self._glue.batch_get_partition(**_named(entry), PartitionsToGet=listed)
                    partitions += answer["Partitions"]
        return {
            tuple(partition["Values"]): partition["StorageDescriptor"].get("Location", "") for partition in partitions
        }

    def add_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None:
        """Add partitions with these values and locations to the entry."""
        self._change(entry, _ADD, [_partition(entry, *item) for item in locations.items()])

    def move_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None:
        """Give the partitions with these values new locations."""
        parts = [
            {"PartitionValueList": list(values), "PartitionInput": _partition(entry, values, location)}
            for values, location in locations.items()
        ]
        self._change(entry, _MOVE, parts)

    def drop_partitions(self, entry: Entry, values: Sequence[Values]) -> None:
        """Remove partitions from the entry; their files stay."""
        self._change(entry, _DROP, [{"Values": list(partition_values)} for partition_values in values])

    def _change(self, entry: Entry, change: _PartitionChange, parts: Sequence[Mapping[str, Any]]) -> None:
        """Send the partitions in parts, and raise an error for partitions that a request could not handle."""
        request = getattr(self._glue, change.request)
        for chunk in chunks(parts, change.limit):
            with self._asking(f"{change.doing} {entry.name}"):
                answer = request(**_named(entry), **{change.argument: chunk})
                for detail in (error["ErrorDetail"] for error in answer.get("Errors", ())):
                    if detail["ErrorCode"] != change.ignored:
                        raise self._errors.ClientError(
                            {"Error": {"Code": detail["ErrorCode"], "Message": detail.get("ErrorMessage", "")}}, "batch"
                        )

    def _found(self, ask: Any) -> Any:
        """The answer; None if Glue does not have the requested object."""
        try:
            return ask()
        except self._errors.ClientError as error:
            if error.response["Error"]["Code"] == _ABSENT:
                return None
            raise

    @contextlib.contextmanager
    def _asking(self, doing: str, ignored: str = "") -> Generator[None]:
        """Turn errors of Glue into lakebed's; errors named in `ignored` are dropped."""
        try:
            yield
        except self._errors.ClientError as error:
            if error.response["Error"]["Code"] != ignored:
                passes = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500
                raise unanswered(self.uri, doing, error, retryable=passes) from error
        except self._errors.BotoCoreError as error:
            raise unanswered(self.uri, doing, error) from error


def _named(entry: Entry) -> dict[str, str]:
    return {"DatabaseName": entry.name.database, "TableName": entry.name.table}


def _described(columns: Sequence[Column]) -> list[dict[str, str]]:
    return [{"Name": c.name.lower(), "Type": c.type, "Comment": c.comment} for c in columns]


def _descriptor(before: Mapping[str, Any], entry: Entry, location: str) -> dict[str, Any]:
    serde = {"SerializationLibrary": entry.serde, "Parameters": dict(entry.serde_properties)}
    return {
        **before,
        "Columns": _described(entry.columns),
        # Glue's readers know S3 by this scheme alone
        "Location": location.replace("s3a://", "s3://", 1) if location.startswith("s3a://") else location,
        "InputFormat": entry.input_format,
        "OutputFormat": entry.output_format,
        "SerdeInfo": {**before.get("SerdeInfo", {}), **serde},
    }


def _filled(table: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    descriptor = _descriptor(table.get("StorageDescriptor", {}), entry, entry.location)
    return {**table, "Name": entry.name.table, "StorageDescriptor": descriptor, "Parameters": dict(entry.properties)}


def _partition(entry: Entry, values: Values, location: str) -> dict[str, Any]:
    return {"Values": list(values), "StorageDescriptor": _descriptor({}, entry, location)}


def _entry(name: EntryName, table: Mapping[str, Any]) -> Entry:
    sd = table.get("StorageDescriptor", {})
    serde = sd.get("SerdeInfo", {})
    return Entry(
        name,
        sd.get("Location", ""),
        tuple(Column(c["Name"], c.get("Type", ""), c.get("Comment", "")) for c in sd.get("Columns", ())),
        tuple(Column(c["Name"], c.get("Type", ""), c.get("Comment", "")) for c in table.get("PartitionKeys", ())),
        sd.get("InputFormat", ""),
        sd.get("OutputFormat", ""),
        serde.get("SerializationLibrary", ""),
        dict(serde.get("Parameters", {})),
        dict(table.get("Parameters", {})),
        table.get("TableType", ""),
        {**table, "StorageDescriptor": sd},
    )
