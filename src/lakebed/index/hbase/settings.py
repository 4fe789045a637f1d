"""Where the rows of an HBase index are, how they are asked for, and what a table's settings call all this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lakebed.config.settings import HBaseSettings
from lakebed.errors import InvalidOption

PREFIX = "hbase."
_NAMES = {
    "quorum": "zkquorum",
    "port": "zkport",
    "znode": "zknode.path",
    "table": "table",
    "buckets": "bucket.number",
    "rollback_sync": "rollback.sync",
    "transport": "transport",
    "thrift_host": "thrift.host",
    "thrift_port": "thrift.port",
    "get_batch": "get.batch.size",
    "put_batch": "put.batch.size",
    "max_qps": "max.qps.per.region.server",
    "qps_fraction": "qps.fraction",
    "get_pause_ms": "sleep.ms.for.get.batch",
    "put_pause_ms": "sleep.ms.for.put.batch",
    "session_ms": "zk.session_timeout_ms",
    "connection_ms": "zk.connection_timeout_ms",
    "retry_ms": "retry_ms",
}
# What may differ from one job to the next, without rows being looked for elsewhere.
_OF_A_JOB = frozenset(list(_NAMES)[6:])
_REBALANCED = "RebalancedSparkHoodieHBaseIndex"
# Hudi's, where a job names its rebalanced index and no number.
_BUCKETS = 8


@dataclass(frozen=True, slots=True)
class HBaseTable:
    """An HBase table and how it is asked. `buckets` is the number of prefixes that rows are spread over, None for rows
    that are keys alone. The least pause between two batches is in milliseconds, as all that ends in `_ms`."""

    quorum: str
    table: str
    port: int = 2181
    znode: str = "/hbase"
    buckets: int | None = None
    rollback_sync: bool = False
    transport: str = "native"
    thrift_host: str = ""
    thrift_port: int = 9090
    get_batch: int = 1000
    put_batch: int = 1000
    max_qps: int | None = None
    qps_fraction: float = 0.5
    get_pause_ms: int = 0
    put_pause_ms: int = 0
    session_ms: int = 60_000
    connection_ms: int = 15_000
    retry_ms: int = 60_000

    def __post_init__(self) -> None:
        missing = [] if self.table else ["table"]
        if self.transport == "thrift":
            missing += [] if self.thrift_host else ["thrift.host"]
        else:
            missing += [] if self.quorum else ["zkquorum"]
        if missing:
            names = ", ".join(f"hoodie.index.hbase.{name}" for name in missing)
            raise InvalidOption(
                f"the HBase index needs {names}",
                hint="give it in the options (or properties of create), or an HBaseIndex object",
                context={"options": missing},
            )
        if self.transport not in ("native", "thrift"):
            raise InvalidOption(f"HBase transport {self.transport!r}", hint="take native or thrift")

    @property
    def where(self) -> str:
        """For people."""
        if self.transport == "thrift":
            return f"hbase table {self.table} (Thrift gateway {self.thrift_host}:{self.thrift_port})"
        return f"hbase table {self.table} (ZooKeeper {self.hosts}{self.znode})"

    @property
    def hosts(self) -> str:
        """The servers of the ensemble, each with its port."""
        names = (name.strip() for name in self.quorum.split(","))
        return ",".join(name if ":" in name else f"{name}:{self.port}" for name in names if name)

    def texts(self) -> dict[str, str]:
        """What differs from the defaults, as properties of the table."""
        found: dict[str, str] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                found[PREFIX + _NAMES[field.name]] = str(value).lower() if isinstance(value, bool) else str(value)
        return found

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> HBaseTable:
        """What `texts` gave. InvalidOption for values that are none."""
        given: dict[str, Any] = {"quorum": "", "table": ""}
        for field in fields(cls):
            text = texts.get(PREFIX + _NAMES[field.name])
            if text is not None:
                given[field.name] = _parsed(field.name, text)
        return cls(**given)


def is_of_a_job(key: str) -> bool:
    """Whether a setting says how rows are asked for, not where they are."""
    return key.startswith(PREFIX) and key.removeprefix(PREFIX) in {_NAMES[name] for name in _OF_A_JOB}


def said(options: HBaseSettings) -> dict[str, str]:
    """What a job says, as `HBaseTable.texts` has it."""
    found: dict[str, str] = {}
    for name, key in _NAMES.items():
        value = getattr(options, name)
        if value is not None:
            found[PREFIX + key] = str(value).lower() if isinstance(value, bool) else str(value)
    buckets = found.pop(PREFIX + _NAMES["buckets"], None)
    if options.java_class == _REBALANCED:
        found[PREFIX + _NAMES["buckets"]] = buckets or str(_BUCKETS)
    return found


def _parsed(name: str, text: str) -> Any:
    kind = {field.name: field.type for field in fields(HBaseTable)}[name]
    try:
        if kind == "bool":
            return text.strip().lower() == "true"
        if kind == "float":
            return float(text)
        return text if kind == "str" else int(text)
    except ValueError as error:
        raise InvalidOption(
            f"lakebed.index.{PREFIX}{_NAMES[name]}={text} is no number", hint="correct it with t.configure"
        ) from error
