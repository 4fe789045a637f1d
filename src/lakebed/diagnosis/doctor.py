"""The examination of a table: one check after another. What a check raises is a finding, and the other checks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakebed.catalog.names import table_uri
from lakebed.config.options import Options, resolve_options
from lakebed.diagnosis import environment, storage, table
from lakebed.diagnosis.findings import Diagnosis, Finding, command, finding_of
from lakebed.errors import CorruptFile, TableNotFound, UnsupportedFeature
from lakebed.operations.foreign_files import no_table_here
from lakebed.operations.hudi_job import session_engine, write_context
from lakebed.properties.file import load_table_config, mend_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage import open_storage
from lakebed.storage.base import Storage

TABLE = "table"


def examine(
    uri: str,
    *,
    verified: bool = False,
    read_only: bool = False,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: Any | None = None,
) -> Diagnosis:
    """The diagnosis of the table at `uri`, its storage and this installation. A check that fails is a finding.

    `verified` compares the indexes with the rows, which reads all keys. `read_only` leaves the storage as it is: no
    probe file, and the table lock is not taken. `options` are those of a job, such as its lock provider. Raises
    `InvalidOption` for wrong options.
    """
    settings = resolve_options(options)
    findings = [*_checked("versions", lambda: environment.versions(spark=spark is not None))]
    try:
        opened: Storage = open_storage(table_uri(uri), storage_options)
        if read_only:
            opened = storage.ReadOnly(opened)
        config, reason = _config(opened)
    except Exception as error:
        return Diagnosis.of(uri, [*findings, finding_of(storage.PERMISSIONS, error)])
    if spark is not None:
        findings += _checked("spark session", lambda: environment.session(spark, opened))
    if reason is not None:
        findings.append(reason)
    has_folder = reason is None or reason.check != TABLE
    tried = storage.permissions if has_folder and not read_only else storage.readable
    findings += _checked(storage.PERMISSIONS, lambda: tried(opened))
    if config is not None:
        findings += _of_table(opened, config, settings, verified=verified, read_only=read_only)
    return Diagnosis.of(uri, findings)


def _config(opened: Storage) -> tuple[TableConfig | None, Finding | None]:
    """The table's settings and None, or None and the finding with the reason why there are no settings."""
    try:
        return load_table_config(opened), None
    except TableNotFound as error:
        return None, finding_of(TABLE, no_table_here(opened, error))
    except CorruptFile as error:
        mend = command("maintenance repair", opened.spec.uri, "--part", "properties")
        try:
            mend_properties(opened, dry_run=True)
        except CorruptFile:
            mend = error.hint  # there is nothing to mend it from
        return None, finding_of(table.PROPERTIES, error, mend)
    except UnsupportedFeature as error:
        return None, finding_of(table.PROPERTIES, error)


def _of_table(
    opened: Storage, config: TableConfig, settings: Options, *, verified: bool, read_only: bool
) -> Iterator[Finding]:
    uri = opened.spec.uri
    yield from _checked(table.PROPERTIES, lambda: table.properties(opened, config, uri))
    try:
        context = write_context(opened, config, session_engine(None), settings)
    except Exception as error:
        yield finding_of(TABLE, error)
        return
    snapshot = context.opened
    if not read_only:
        yield from _checked(storage.LOCK, lambda: storage.lock(opened, context.settings.lock, config.name))
    yield from _checked(table.PROPERTIES, lambda: table.features(snapshot))
    yield from _checked(table.SERVICE, lambda: table.services(context, uri))
    yield from _checked(table.INDEX, lambda: table.indexes(snapshot, uri, verified=verified))
    yield from _checked(table.INDEX, lambda: table.keys(snapshot, uri, verified=verified))
    yield from _checked(table.CHECKS, lambda: table.checks(snapshot, uri, verified=verified))
    yield from _checked(table.FILES, lambda: table.files(context, uri))
    yield from _checked(table.ARCHIVE, lambda: table.archive(snapshot, uri))


def _checked(check: str, findings: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; an error that it raises is a finding, too."""
    try:
        yield from findings()
    except Exception as error:
        yield finding_of(check, error)
