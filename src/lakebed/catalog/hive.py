"""The Hive metastore, 2.3 to 4, over its own Thrift protocol."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from lakebed.catalog.base import EntryName, unanswered
from lakebed.catalog.metastore import EXTERNAL_TABLE, Column, Entry, Values, chunks
from lakebed.concurrency.hive import MetastoreClient
from lakebed.expressions.base import escape

# So many names of partitions go into one question.
_NAMES_A_REQUEST = 1000
_CASCADE = {"CASCADE": "true"}
_INCOMPATIBLE = (
    "The metastore compares columns by their positions: set hive.metastore.disallow.incompatible.col.type.changes=false"
    " there, or drop the entry and register the table again."
)


class HiveMetastore:
    """The metastore at `uris` (`thrift://host:port,...`, of which the first that answers is taken). Needs the package
    pymetastore. A request takes at most `seconds`."""

    def __init__(self, uris: str, seconds: float) -> None:
        self._client = MetastoreClient(uris, seconds, "a Hive metastore as catalog")
        self._uri = "hive://" + ",".join(f"{host}:{port}" for host, port in self._client.addresses)

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        return self._uri

    def close(self) -> None:
        """Close the connections to the metastore."""
        self._client.close()

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        databases: list[Any] = []
        with self._asking(f"look up the database {database}", self._client.types.NoSuchObjectException) as client:
            databases.append(client.get_database(database))
        return bool(databases)

    def create_database(self, database: str) -> None:
        """Create a database, unless it exists."""
        types = self._client.types
        described = types.Database(name=database, description="created by lakebed", parameters={})
        with self._asking(f"create the database {database}", types.AlreadyExistsException) as client:
            client.create_database(described)

    def databases(self) -> Sequence[str]:
        """The names of the databases."""
        names: list[str] = []
        with self._asking("list the databases") as client:
            names += client.get_all_databases()
        return names

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of a database."""
        names: list[str] = []
        with self._asking(f"list the tables of {database}") as client:
            names += client.get_all_tables(database)
        return names

    def delete(self, entry: Entry) -> None:
        """Delete the entry, if it exists. The table's files stay."""
        with self._asking(f"drop {entry.name}", self._client.types.NoSuchObjectException) as client:
            client.drop_table(entry.name.database, entry.name.table, False)

    def find(self, name: EntryName) -> Entry | None:
        """The entry of this name; None if there is none."""
        entries: list[Entry] = []
        with self._asking(f"look up {name}", self._client.types.NoSuchObjectException) as client:
            request = self._client.types.GetTableRequest(dbName=name.database, tblName=name.table)
            entries.append(_entry(name, client.get_table_req(request).table))
        return entries[0] if entries else None

    def create(self, entry: Entry) -> None:
        """Create an entry, unless another process has created it meanwhile."""
        types = self._client.types
        table = types.Table(
            tableName=entry.name.table,
            dbName=entry.name.database,
            owner="lakebed",
            createTime=int(time.time()),
            tableType=EXTERNAL_TABLE,
            partitionKeys=self._fields(entry.partition_columns),
        )
        with self._asking(f"create {entry.name}", types.AlreadyExistsException) as client:
            client.create_table(self._filled(table, entry))

    def update(self, entry: Entry, *, cascade: bool) -> None:
        """Write the entry in place of `entry.stored`; with `cascade` the columns of its partitions as well."""
        context = self._client.types.EnvironmentContext(properties=_CASCADE if cascade else {})
        table = self._filled(entry.stored, entry)
        with self._asking(f"change {entry.name}") as client:
            client.alter_table_with_environment_context(entry.name.database, entry.name.table, table, context)

    def partitions(self, entry: Entry, values: Collection[Values] | None = None) -> Mapping[Values, str]:
        """The locations, by values, of all partitions of the entry, or of the existing ones with these values."""
        where = (entry.name.database, entry.name.table)
        partitions: list[Any] = []
        with self._asking(f"list the partitions of {entry.name}") as client:
            if values is None:
                partitions = client.get_partitions(*where, -1)
            else:
                for chunk in chunks(values, _NAMES_A_REQUEST):
                    names = [_partition_name(entry, partition_values) for partition_values in chunk]
                    partitions += client.get_partitions_by_names(*where, names)
        return {tuple(partition.values): partition.sd.location or "" for partition in partitions}

    def add_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None:
        """Add partitions with these values and locations to the entry."""
        request = self._client.types.AddPartitionsRequest(
            dbName=entry.name.database,
            tblName=entry.name.table,
            parts=self._described(entry, locations),
            ifNotExists=True,
            needResult=False,
        )
        with self._asking(f"add partitions to {entry.name}") as client:
            client.add_partitions_req(request)

    def move_partitions(self, entry: Entry, locations: Mapping[Values, str]) -> None:
        """Give the partitions with these values new locations."""
        with self._asking(f"change partitions of {entry.name}") as client:
            client.alter_partitions(entry.name.database, entry.name.table, self._described(entry, locations))

    def drop_partitions(self, entry: Entry, values: Sequence[Values]) -> None:
        """Remove partitions from the entry; their files stay."""
        types = self._client.types
        request = types.DropPartitionsRequest(
            dbName=entry.name.database,
            tblName=entry.name.table,
            parts=types.RequestPartsSpec(
                names=[_partition_name(entry, partition_values) for partition_values in values]
            ),
            deleteData=False,
            ifExists=True,
            needResult=False,
        )
        with self._asking(f"drop partitions of {entry.name}") as client:
            client.drop_partitions_req(request)

    def _described(self, entry: Entry, locations: Mapping[Values, str]) -> list[Any]:
        types = self._client.types
        return [
            types.Partition(
                values=list(values),
                dbName=entry.name.database,
                tableName=entry.name.table,
                createTime=0,
                lastAccessTime=0,
                sd=self._descriptor(types.StorageDescriptor(), entry, location),
                parameters={},
            )
            for values, location in locations.items()
        ]

    def _filled(self, table: Any, entry: Entry) -> Any:
        """The metastore's object with the values of the entry."""
        sd = table.sd or self._client.types.StorageDescriptor()
        table.sd = self._descriptor(sd, entry, entry.location)
        table.parameters = dict(entry.properties)
        return table

    def _descriptor(self, sd: Any, entry: Entry, location: str) -> Any:
        sd.cols = self._fields(entry.columns)
        sd.location = location
        sd.inputFormat, sd.outputFormat = entry.input_format, entry.output_format
        sd.serdeInfo = sd.serdeInfo or self._client.types.SerDeInfo()
        sd.serdeInfo.serializationLib = entry.serde
        sd.serdeInfo.parameters = dict(entry.serde_properties)
        sd.compressed, sd.numBuckets = bool(sd.compressed), sd.numBuckets or 0
        sd.bucketCols, sd.sortCols, sd.parameters = sd.bucketCols or [], sd.sortCols or [], sd.parameters or {}
        return sd

    def _fields(self, columns: Sequence[Column]) -> list[Any]:
        return [self._client.types.FieldSchema(name=c.name, type=c.type, comment=c.comment) for c in columns]

    @contextlib.contextmanager
    def _asking(self, doing: str, *ignored: type[Exception]) -> Generator[Any]:
        """A connected client; an error of the metastore as lakebed's, after which the next request connects again. An
        error of a class of `ignored` ends the block."""
        try:
            yield self._client.connected()
        except ignored:
            return
        except (self._client.errors, OSError) as error:
            self._client.close()
            types = self._client.types
            refused = isinstance(error, types.MetaException | types.InvalidOperationException)
            hint = _INCOMPATIBLE if "incompatible with the existing columns" in str(error) else ""
            raise unanswered(self.uri, doing, error, retryable=not refused, hint=hint) from error


def _entry(name: EntryName, table: Any) -> Entry:
    sd, serde = table.sd, table.sd.serdeInfo
    return Entry(
        name,
        sd.location or "",
        _columns(sd.cols),
        _columns(table.partitionKeys),
        sd.inputFormat or "",
        sd.outputFormat or "",
        (serde and serde.serializationLib) or "",
        dict((serde and serde.parameters) or {}),
        dict(table.parameters or {}),
        table.tableType or "",
        table,
    )


def _columns(fields: Sequence[Any] | None) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.type, field.comment or "") for field in fields or ())


def _partition_name(entry: Entry, values: Values) -> str:
    """The name of a partition in the metastore: `city=a%2Fb/day=1`."""
    pairs = zip(entry.partition_columns, values, strict=True)
    return "/".join(f"{escape(column.name.lower())}={escape(value)}" for column, value in pairs)
