"""Registration of a table in catalogs: on request, and after each commit where the table or the job asks for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.catalog.registry import CatalogUri
from lakebed.config.option_table import LIST_FORMATS
from lakebed.config.options import resolve_options, service_settings
from lakebed.config.settings import CatalogSettings
from lakebed.errors import LakebedError
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS, has_completion_times
from lakebed.properties.file import load_table_config
from lakebed.read.plan import data_columns
from lakebed.secrets import masked_text
from lakebed.services.driver import Service, ServiceState
from lakebed.services.publishing import consumer_of, published_columns
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.consumers import ConsumerFiles
from lakebed.timeline.schema_versions import comments_of
from lakebed.timeline.timeline import completed_at
from lakebed.wording import Printed

# Every write imports this module, and few tables are registered: catalogs are imported where they are used.
if TYPE_CHECKING:
    from lakebed.catalog.base import RegisteredTable, SyncedCommit, SyncResult

_log = logging.getLogger("lakebed")
# Entries that this process has registered, each with the table's commit; and those whose last registration failed.
_registered: dict[tuple[str, str], SyncedCommit] = {}
_failed: set[tuple[str, str]] = set()


@dataclass(frozen=True, repr=False)
class Synced(Printed):
    """The registrations of a table, one per catalog; `failures` are the errors of the other catalogs."""

    results: tuple[SyncResult, ...] = ()
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*map(str, self.results), *self.failures])


@dataclass(frozen=True, repr=False)
class CatalogEntry(Printed):
    """An entry or a list by which other programs find a table: `catalog` is the URI of an entry, or the format of a
    published list.

    `kind` is "entry" or "list"; `automatic` is whether each commit updates it; `shows` is the completion time of the
    commit that a list shows, empty for an entry, whose catalog is not asked.
    """

    catalog: str
    kind: str
    automatic: bool
    shows: str = ""

    def __str__(self) -> str:
        how = "each commit updates it" if self.automatic else "updated on request"
        return f"{self.kind} {self.catalog}: {how}" + (f", shows {self.shows}" if self.shows else "")


class CatalogSync(Service[Synced]):
    """The service that registers the table as the entries that its settings name."""

    name = "catalog-sync"
    title = "registration in catalogs"
    after_write = ("catalog.targets", "catalog.hive", "catalog.meta")

    def due(self, state: ServiceState) -> str | None:
        commit = _newest(state.commits)
        uri = state.context.storage.spec.uri
        for entry in entries_of(state.settings.catalog, state.context.config.name):
            if _registered.get((uri, entry)) != commit:
                return f"{entry} may show an older commit"
        return None

    def serve(self, state: ServiceState) -> Synced:
        return sync_all(state.context.storage, state.settings.catalog)

    def has_changed(self, outcome: Synced) -> bool:
        return any(result.has_changed for result in outcome.results)


def entries_of(settings: CatalogSettings, table: str) -> tuple[str, ...]:
    """The URIs of the entries that a commit registers: those of `lakebed.catalogs`, then those of Hudi's own options.

    >>> entries_of(CatalogSettings(hive=True, uris="thrift://ms:9083", database="shop"), "orders")
    ('hive://ms:9083/shop/orders',)
    """
    entries = list(settings.targets)
    tools = {
        *(settings.tools if settings.meta else ()),
        *(["HiveSyncTool"] if settings.hive else ()),
    }
    name = settings.table or table
    if "HiveSyncTool" in tools:
        hosts = ",".join(uri.strip().removeprefix("thrift://") for uri in settings.uris.split(","))
        entries.append(f"hive://{hosts}/{settings.database}/{name}")
    if "AwsGlueCatalogSyncTool" in tools:
        database, entry = settings.glue_database or settings.database, settings.glue_table or name
        entries.append(f"glue://{settings.glue_region}/{database}/{entry}")
    return tuple(dict.fromkeys(entries))


def listed_entries(storage: Storage) -> list[CatalogEntry]:
    """The entries that the table's settings name, then the published or due lists of other formats."""
    config = load_table_config(storage)
    settings = service_settings({}, config.properties)
    entries = [CatalogEntry(uri, "entry", True) for uri in entries_of(settings.catalog, config.name)]
    files = ConsumerFiles(storage)
    for form in LIST_FORMATS:
        consumer, automatic = files.find(consumer_of(form)), form in settings.publish.formats
        if consumer is not None or automatic:
            entries.append(CatalogEntry(form, "list", automatic, "" if consumer is None else consumer.position))
    return entries


def register_table(
    storage: Storage, catalog: str, name: str | None, options: Mapping[str, Any] | None, *, full: bool = False
) -> SyncResult:
    """Register the table's present state in a catalog, by the options of the table and of the call.

    Raises `InvalidOption` for a URI that is no catalog's, and what `Catalog.register` raises.
    """
    config = load_table_config(storage)
    settings = service_settings(resolve_options(options).explicit, config.properties)
    return _register(storage, _described(open_snapshot(storage, config)), catalog, name, settings.catalog, full=full)


def sync_all(storage: Storage, settings: CatalogSettings) -> Synced:
    """Register the table as each entry that its settings name. A failure does not stop the other registrations. It is
    logged with the command to run, the first time as a warning."""
    config = load_table_config(storage)
    results: list[SyncResult] = []
    failures: list[str] = []
    table: RegisteredTable | None = None
    for entry in entries_of(settings, config.name):
        key = (storage.spec.uri, entry)
        try:
            table = table or _described(open_snapshot(storage, config))
            results.append(_register(storage, table, entry, None, settings))
            _failed.discard(key)
        except Exception as error:
            command = f"lakebed catalogs register {key[0]} {entry}"
            again = f"The next commit registers it again, and so does `{command}`."
            reason = str(error) if isinstance(error, LakebedError) else f"{type(error).__name__}: {error}."
            failures.append(masked_text(f"{entry}: {reason} {again}"))
            level = logging.INFO if key in _failed else logging.WARNING
            _log.log(level, "the commit is valid; its registration in a catalog failed: %s", failures[-1])
            _failed.add(key)
    return Synced(tuple(results), tuple(failures))


def _register(
    storage: Storage,
    table: RegisteredTable,
    catalog: str,
    name: str | None,
    settings: CatalogSettings,
    *,
    full: bool = False,
) -> SyncResult:
    from lakebed.catalog.base import SyncResult

    started = time.monotonic()
    parsed = CatalogUri.parse(catalog)
    entry = parsed.entry_of(name)
    opened = parsed.open(settings)
    try:
        entries = opened.register(table, entry, settings, full=full)
    finally:
        opened.close()
    _registered[storage.spec.uri, catalog] = table.commit
    return SyncResult(opened.uri, table.commit.instant, tuple(entries), seconds=time.monotonic() - started)


def _newest(commits: Any) -> SyncedCommit:
    from lakebed.catalog.base import SyncedCommit

    if not commits:
        return SyncedCommit()
    return SyncedCommit(max(i.time for i in commits), max(map(completed_at, commits)))


def _described(snapshot: Snapshot) -> RegisteredTable:
    """The description of the table for catalogs."""
    from lakebed.catalog.base import RegisteredTable

    config, timeline = snapshot.config, snapshot.timeline

    def partitions() -> set[str]:
        return {file_slice.partition for file_slice in snapshot.file_slices() if file_slice.partition}

    def touched_since(synced: SyncedCommit) -> set[str] | None:
        """The partition paths of commits after the entry's commit. None means all partitions, if that commit was taken
        back or archived, or if the table has no completion times."""
        if not has_completion_times(config.version) or synced.instant not in timeline.commit_times:
            return None
        if not any(completed_at(i) == synced.completed for i in timeline.commits):
            return None
        later = timeline.commits_metadata(timeline.commits_completed_after(synced.completed))
        return {path for commit in later for path in (*commit.stats, *commit.replaced) if path}

    kinds = dict(zip(config.partition_fields, config.partition_types, strict=False))
    is_text = {f for f in config.partition_fields if config.key_generator == "TIMESTAMP" or kinds.get(f) == "TIMESTAMP"}
    return RegisteredTable(
        config.name,
        snapshot.storage.url(),
        config.table_type == "mor",
        pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *data_columns(snapshot)]),
        comments_of(snapshot.avro_schema),
        config.partition_fields,
        _newest(timeline.commits),
        partitions,
        touched_since,
        partial(published_columns, snapshot.storage),
        frozenset(is_text),
        config.slash_dates,
    )
