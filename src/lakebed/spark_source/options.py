"""The options of `spark.read.format("lakebed")`, checked and turned into a scan."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import pyarrow as pa

from lakebed.config.options import resolve_options
from lakebed.config.settings import ReadSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config
from lakebed.read.cdc import ChangeLog, Images
from lakebed.read.incremental import Changes
from lakebed.read.moments import resolve_as_of
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot
from lakebed.spark_sink.options import STORAGE_PREFIX
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline

_LAKEBED_OPTIONS = (
    "path",
    "as_of",
    "query_type",
    "start",
    "end",
    "columns",
    "where",
    "meta",
    "pushdown",
    "metadata",
    "images",
)
# Options of `readStream` alone, in lower case.
STREAM_OPTIONS = {
    name.lower(): name
    for name in (
        "maxCommitsPerTrigger",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "maxFilesPerTrigger",
        "failOnDataLoss",
        "consumer",
    )
}
_HUDI_START = "hoodie.datasource.streaming.startoffset"
_QUERY = "query"
# Properties that Spark's own catalog adds to the options of CREATE TABLE ... USING lakebed.
_CATALOG_PROPERTIES = (
    "owner",
    "provider",
    "comment",
    "location",
    "external",
    "is_managed_location",
    "collation",
    "serialization.format",
)
# Options of writes, which a view has for INSERT.
_OF_WRITES = ("operation", "identifier", "retries")
_HUDI_PREFIXES = ("hoodie.", "lakebed.", "as.of.")


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read with the data source."""

    path: str
    query_type: str = "snapshot"
    as_of: str | None = None
    start: str | None = None
    end: str | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    meta: bool = False
    pushdown: str = "auto"
    use_metadata: bool = True
    images: Images = "rows"
    reads: ReadSettings = field(default_factory=ReadSettings)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of a stream alone, by their names in lower case."""

    def scan(self) -> Scan:
        """The scan over the table's present state."""
        snapshot = self.snapshot()
        if self.query_type == "incremental":
            start = "000" if self.start is None else self.start
            return Changes(snapshot, start, self.end, self.columns, self.where, meta=self.meta, reads=self.reads)
        return Scan(snapshot, self.columns, self.where, self.query_type, meta=self.meta, reads=self.reads)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, whatever the range is."""
        if self.query_type == "cdc":
            return self.change_log().schema
        query = "snapshot" if self.query_type == "incremental" else self.query_type
        return replace(self, query_type=query, start=None, end=None).scan().schema

    def change_log(self) -> ChangeLog:
        """The changes of the range."""
        start = "000" if self.start is None else self.start
        return ChangeLog(self.snapshot(), start, self.end, self.columns, self.images)

    def refuse_of_streams(self) -> None:
        """Raise `InvalidOption` for options that only a stream can have."""
        for name in self.stream.keys() & STREAM_OPTIONS.keys():
            raise InvalidOption(
                f"{STREAM_OPTIONS[name]} is an option of spark.readStream, and this is a read of one moment",
                hint="leave it out; start and end bound an incremental read",
                context={"option": STREAM_OPTIONS[name]},
            )

    def snapshot(self) -> Snapshot:
        """The table's present state, or its state as of `as_of`."""
        storage = open_storage(self.path, dict(self.storage))
        if storage.spec.in_this_process:
            raise UnsupportedFeature(
                f"{self.path} is in the memory of the process that made it, and Spark reads in others",
                hint="make the table at a path, or read it in that process with to_arrow()",
                context={"feature": "memory on Spark", "uri": self.path},
            )
        config = load_table_config(storage)
        timeline = partial(load_timeline, storage, config)
        as_of = None if self.as_of is None else resolve_as_of(self.as_of, config, timeline)
        return open_snapshot(storage, config, as_of=as_of, use_metadata=self.use_metadata)


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options by lakebed's names (the fields of `SourceOptions`, `storage.<name>`) or Hudi's (`as.of.instant`,
    `hoodie.datasource.query.type`, ...). Raises `InvalidOption` for unknown ones, with the nearest known one."""
    settings: dict[str, str] = {}
    hudi: dict[str, str] = {}
    storage: dict[str, str] = {}
    stream: dict[str, str] = {}
    for name, value in options.items():
        key = "query_type" if name.lower() == _QUERY else name.lower()
        if key in _LAKEBED_OPTIONS:
            settings[key] = value
        elif key in STREAM_OPTIONS:
            stream[key] = value
        elif key == _HUDI_START:
            stream["startoffset"] = value
        elif key.startswith(STORAGE_PREFIX):
            storage[key.removeprefix(STORAGE_PREFIX)] = value
        elif key.startswith(_HUDI_PREFIXES):
            hudi[key] = value
        elif key in _OF_WRITES:
            continue
        elif key in _CATALOG_PROPERTIES:
            raise UnsupportedFeature(
                "Spark's own catalog cannot hold a table of lakebed: when it is read, Spark passes no path and"
                " no options to a data source in Python",
                hint="name the table by a view: CREATE TEMPORARY VIEW name USING lakebed OPTIONS (path '...')",
                context={"feature": "CREATE TABLE USING lakebed", "option": name},
            )
        else:
            near = difflib.get_close_matches(key, (*_LAKEBED_OPTIONS, *STREAM_OPTIONS), n=1, cutoff=0.5)
            near = [STREAM_OPTIONS.get(option, option) for option in near]
            raise InvalidOption(
                f"format('lakebed') has no option {name!r}",
                hint=f"did you mean {near[0]!r}?"
                if near
                else f"it has {', '.join(_LAKEBED_OPTIONS)} and storage.<name>",
                context={"option": name, "nearest": near[0] if near else None},
            )
    if "path" not in settings:
        raise InvalidOption("format('lakebed') needs the table's path", hint="give it to load()")
    read = resolve_options(hudi).read
    start, end = settings.get("start", read.begin), settings.get("end", read.end)
    query_settings = {"query_type": "incremental" if start is not None else read.query_type} | settings
    query = _word(query_settings, "query_type", ("snapshot", "read_optimized", "incremental", "cdc"))
    images = _word(settings, "images", ("rows", "json"))
    if query == "incremental" and read.incremental_format == "cdc":
        # a job of real Hudi gets the columns that it knows
        query, images = "cdc", settings.get("images", "json")
    if query == "cdc":
        _refuse_with_changes(settings)
    columns = settings.get("columns")
    return SourceOptions(
        path=settings["path"],
        query_type=query,
        as_of=settings.get("as_of", read.as_of),
        start=start,
        end=end,
        columns=tuple(c.strip() for c in columns.split(",")) if columns else None,
        where=settings.get("where"),
        meta=settings.get("meta", "false").lower() == "true",
        pushdown=_word(settings, "pushdown", ("auto", "always")),
        images=cast(Images, images),
        use_metadata=_word(settings, "metadata", ("true", "false")) == "true" and read.use_metadata,
        reads=read,
        storage=storage,
        stream=stream,
    )


def _refuse_with_changes(options: Mapping[str, str]) -> None:
    for name in ("as_of", "where", "meta"):
        if name in options:
            raise InvalidOption(
                f"a cdc query takes no option {name!r}",
                hint="filter the DataFrame, e.g. by after.city; start and end name the range",
                context={"option": name},
            )


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """The value of an option that must be one of the words; the first by default."""
    word = options.get(name, words[0]).lower()
    if word not in words:
        raise InvalidOption(f"there is no {name} {word!r}", hint=f"take {' or '.join(words)}", context={"option": name})
    return word
