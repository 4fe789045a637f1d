"""Options, collected into settings: two that set one thing are compared with each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.config.option_table import (
    CONCURRENCY_MODES,
    MERGE_MODES,
    PAYLOAD_STRATEGY,
    PAYLOADS,
    STRATEGIES,
    TABLE_TYPES,
    Option,
    simple_name,
    split_partition_types,
)
from lakebed.config.settings import (
    ArchivalSettings,
    CallbackSettings,
    CatalogSettings,
    CleaningSettings,
    ClusteringSettings,
    CompactionSettings,
    ConsumerSettings,
    FileSizingSettings,
    IndexSettings,
    LockSettings,
    PartitionTtlSettings,
    PublishSettings,
    ReadSettings,
    RetrySettings,
    SparkSettings,
    TableSettings,
    ValidationSettings,
    WriteSettings,
)
from lakebed.errors import InvalidOption

_METADATA = "hoodie.metadata.enable"
_MISSING_DROP = "missing.drop"
_MISSING_NULL = "missing.null"
# Hudi's settings of when a compaction is due: a job or a table that has one of them is compacted by them alone.
_COMPACTION_TRIGGER = {"trigger", "delta_commits", "delta_seconds"}


@dataclass(frozen=True, slots=True)
class Options:
    """A job's options as settings. `explicit` has the explicit ones, by canonical key; `operation` is None and `path`
    empty if the job does not name them."""

    explicit: Mapping[str, str]
    operation: str | None = None
    path: str = ""
    table: TableSettings = field(default_factory=TableSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    read: ReadSettings = field(default_factory=ReadSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    cleaning: CleaningSettings = field(default_factory=CleaningSettings)
    archival: ArchivalSettings = field(default_factory=ArchivalSettings)
    clustering: ClusteringSettings = field(default_factory=ClusteringSettings)
    partition_ttl: PartitionTtlSettings = field(default_factory=PartitionTtlSettings)
    file_sizing: FileSizingSettings = field(default_factory=FileSizingSettings)
    consumers: ConsumerSettings = field(default_factory=ConsumerSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    retries: RetrySettings = field(default_factory=RetrySettings)
    callback: CallbackSettings = field(default_factory=CallbackSettings)


class CollectedSettings:
    """The parsed values of a job's options by setting. It detects two options that disagree on one setting."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Any, str]] = {}
        self._timestamp: dict[str, str] = {}

    def put(self, option: Option, value: Any) -> None:
        if option.setting == "keygen":
            self._timestamp[option.key] = str(value)
            return
        value = _converted(option, value)
        previous = self._values.get(option.setting)
        if previous is not None and previous[0] != value and option.setting != _MISSING_NULL:
            raise InvalidOption(
                f"{option.key} is {value!r} and {previous[1]} is {previous[0]!r}", hint="give one of them"
            )
        if previous is None or value:
            self._values[option.setting] = (value, option.key)

    def options(self, explicit: Mapping[str, str], extra: Mapping[str, str]) -> Options:
        write = self._group("write")
        write["extra_metadata"] = dict(extra)
        write["lock"] = LockSettings(**self._group("lock"))
        write["validation"] = ValidationSettings(**self._group("validation"))
        if self._value(_MISSING_DROP):
            write["missing_columns"] = "drop"
        elif self._value(_MISSING_NULL):
            write["missing_columns"] = "null"
        _align_duplicates(write)
        operation = self._value("operation")
        if operation == "upsert" and write.get("dup_policy", "none") != "none":
            # Hudi's rule: an upsert that may not touch known keys is an insert.
            operation = "insert"
        return Options(
            explicit=dict(explicit),
            operation=operation,
            path=self._value("path") or "",
            table=TableSettings(**self._table()),
            index=self._index(),
            write=WriteSettings(**write),
            spark=SparkSettings(**self._group("spark")),
            compaction=self._compaction(),
            cleaning=CleaningSettings(**self._group("cleaning")),
            archival=self._archival(),
            clustering=self._clustering(),
            partition_ttl=PartitionTtlSettings(**self._group("partition_ttl")),
            file_sizing=FileSizingSettings(**self._group("file_sizing")),
            consumers=ConsumerSettings(**self._group("consumers")),
            publish=PublishSettings(**self._group("publish")),
            catalog=CatalogSettings(**self._group("catalog")),
            retries=RetrySettings(**self._group("retries")),
            callback=self._callback(),
            # one word on the metadata table for writes and reads
            read=ReadSettings(use_metadata=explicit.get(_METADATA, "true").lower() != "false", **self._group("read")),
        )

    def _index(self) -> IndexSettings:
        hbase, index = self._group("hbase"), self._group("index")
        if "java_class" in hbase:
            index.setdefault("type", "hbase")
        if index.pop("engine", None) == "CONSISTENT_HASHING" and index.get("type", "bucket") == "bucket":
            index["type"] = "consistent"
        return IndexSettings(**index, hbase=hbase)

    def _compaction(self) -> CompactionSettings:
        values = self._group("compaction")
        if values.keys() & _COMPACTION_TRIGGER:
            values["due"] = "trigger"
        settings = CompactionSettings(**values)
        if settings.inline and settings.schedule_inline:
            raise InvalidOption(
                "hoodie.compact.inline and hoodie.compact.schedule.inline are both true",
                hint="inline compacts within the write, schedule.inline leaves the plan to another job: choose one",
            )
        return settings

    def _archival(self) -> ArchivalSettings:
        settings = ArchivalSettings(**self._group("archival"))
        if settings.above <= settings.down_to:
            raise InvalidOption(
                f"hoodie.keep.max.commits={settings.above} is not above hoodie.keep.min.commits={settings.down_to}",
                hint="an archival begins above the one and leaves the other",
            )
        return settings

    def _clustering(self) -> ClusteringSettings:
        settings = ClusteringSettings(**self._group("clustering"))
        if settings.inline and settings.schedule_inline:
            raise InvalidOption(
                "hoodie.clustering.inline and hoodie.clustering.schedule.inline are both true",
                hint="inline clusters within the write, schedule.inline leaves the plan to another job: choose one",
            )
        return settings

    def _callback(self) -> CallbackSettings:
        settings = CallbackSettings(**self._group("callback"))
        if settings.on:
            is_http = settings.kind == "HoodieWriteCommitHttpCallback"
            needed = {"http.url": settings.http_url} if is_http else {}
            if not is_http:
                needed = {"kafka.bootstrap.servers": settings.kafka_bootstrap, "kafka.topic": settings.kafka_topic}
            lacking = [f"hoodie.write.commit.callback.{name}" for name, value in needed.items() if not value]
            if lacking:
                raise InvalidOption(
                    f"hoodie.write.commit.callback.on needs {', '.join(lacking)}",
                    hint="say where the message of a commit is to go, or leave the callback off",
                    context={"option": lacking[0]},
                )
            if is_http and not settings.http_url.lower().startswith(("http://", "https://")):
                raise InvalidOption(
                    "hoodie.write.commit.callback.http.url is no URL that begins with http:// or https://",
                    hint="give the URL of the server that gets the message",
                    context={"option": "hoodie.write.commit.callback.http.url"},
                )
        return settings

    def _value(self, setting: str) -> Any:
        return self._values.get(setting, (None, ""))[0]

    def _group(self, name: str) -> dict[str, Any]:
        start = name + "."
        return {s.removeprefix(start): v[0] for s, v in self._values.items() if s.startswith(start)}

    def _table(self) -> dict[str, Any]:
        table = self._group("table")
        _align_merge(table)
        if ":" in "".join(table.get("partition_fields", ())):
            table["partition_fields"], table["partition_types"] = split_partition_types(table["partition_fields"])
        table["timestamp"] = dict(self._timestamp)
        return table


def _align_merge(table: dict[str, Any]) -> None:
    """Make mode, strategy id and payload agree, which set one thing in three ways. Afterwards the mode is set unless a
    payload replaces it, and the strategy if it is that of the user's merger."""
    payload, strategy, mode = table.get("payload"), table.pop("merge_strategy", None), table.get("merge_mode")
    implied = STRATEGIES.get(strategy)
    if strategy not in (None, PAYLOAD_STRATEGY) and implied is None:
        implied, table["merge_strategy"] = "custom", strategy
    if payload:
        implied, mode = PAYLOADS[simple_name(payload)], None if mode == "custom" else mode
        table["merge_mode"] = mode
    if implied and mode not in (None, implied):
        setting = f"the payload {payload}" if payload else f"the merge strategy {strategy}"
        raise InvalidOption(
            f"{setting} merges by {implied}, the merge mode given is {mode}",
            hint="give one of them",
        )
    if implied and not payload:
        table["merge_mode"] = implied
    if table.get("merge_mode") == "custom" and "merge_strategy" not in table:
        raise InvalidOption(
            "the merge mode CUSTOM does not name a merger",
            hint="name it: hoodie.record.merge.strategy.id of a merger, or hoodie.datasource.write.payload.class",
        )


def _converted(option: Option, value: Any) -> Any:
    """The setting's value for an option's value, in lakebed's words where these differ from Hudi's."""
    if option.setting == "table.type":
        return TABLE_TYPES[value]
    if option.setting == "table.merge_mode":
        return MERGE_MODES.get(value, value)
    if option.setting == "write.concurrency":
        return CONCURRENCY_MODES[value]
    if option.setting == "index.type":
        return value.lower()
    if option.setting == "write.compression_codec":
        return "none" if value == "uncompressed" else value
    return value


def _align_duplicates(write: dict[str, Any]) -> None:
    """Make `insert.drop.duplicates` and the duplicate policy `drop`, two options for one setting, agree."""
    if write.get("drop_duplicates") and write.get("dup_policy", "none") == "none":
        write["dup_policy"] = "drop"
    if write.get("dup_policy") == "drop":
        write["drop_duplicates"] = True
