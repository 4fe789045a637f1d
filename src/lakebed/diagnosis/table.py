"""A table: its properties, the services that wait, dead writers, its indexes, small files and its archive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from lakebed.diagnosis.findings import Finding, Severity, command, finding_of
from lakebed.diagnosis.storage import CLOCK, CLOCK_SECONDS
from lakebed.expressions.key_generators import PLAIN
from lakebed.index.registry import index_of
from lakebed.metadata_records.layout import ALL_PARTITIONS
from lakebed.model import Action
from lakebed.operations.context import WriteContext
from lakebed.properties.features import features_of
from lakebed.properties.file import mend_properties
from lakebed.properties.table_config import TableConfig
from lakebed.services.checks import broken_rows, run_check
from lakebed.services.clustering import can_merge, partitions_with_small_files
from lakebed.services.create_index import list_indexes
from lakebed.services.driver import ServiceState, is_set
from lakebed.services.due import SERVICES
from lakebed.services.verify import verify
from lakebed.slices.newest_files import NAMED_VERSION, stored_key_forms
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.storage.base import Storage
from lakebed.timeline.instants import format_time
from lakebed.wording import count_text, size_text

PROPERTIES, SERVICE, INDEX, FILES, ARCHIVE = "properties", "services", "indexes", "files", "archive"
CHECKS = "checks"
# So many small files of a partition path are worth a command.
_SMALL_FILES = 10
# So many missing files are named.
_NAMED_FILES = 5
# Without --verify a check of rows reads no more than this.
_READ_BYTES = 64 << 20
# Every call lists the active timeline.
_LONG_TIMELINE = 1_000
# So many file slices are asked for their least and greatest key.
_ASKED_FILES = 64
# The first release of Hudi that reads each table version.
_RELEASES = {8: "1.0", 9: "1.1"}


def properties(storage: Storage, config: TableConfig, uri: str) -> Iterator[Finding]:
    """The parts of `hoodie.properties` that this or another engine refuses."""
    damage = mend_properties(storage, dry_run=True)
    if damage is not None:
        repair = command("maintenance repair", uri, "--part", "properties")
        yield Finding(PROPERTIES, Severity.ERROR, f"{damage}; real Hudi may refuse the table", repair)
    version = config.version
    if version in _RELEASES:
        release = _RELEASES[version]
        yield Finding(PROPERTIES, Severity.FINE, f"table version {version}, which Hudi reads from release {release} on")
    else:
        yield Finding(PROPERTIES, Severity.FINE, f"table version {version}, which all releases of Hudi read")
    if config.merge_mode == "custom" and not config.properties.get("hoodie.compaction.payload.class"):
        strategy = config.merge_strategy
        yield Finding(
            PROPERTIES,
            Severity.WARNING,
            f"rows are merged by the merger {strategy}: other engines refuse the table until they have a merger of"
            " this id",
            "set hoodie.write.record.merge.custom.implementation.classes in the other engine",
        )
    if config.drop_partition_columns:
        yield Finding(
            PROPERTIES,
            Severity.WARNING,
            "the files lack the partition columns: hudi-rs and engines that read the Parquet files alone refuse the"
            " table or show nulls",
            "read it with Hudi or lakebed; a new table without hoodie.datasource.write.drop.partition.columns has them",
        )


def features(snapshot: Snapshot) -> Iterator[Finding]:
    """The features of the table for which lakebed refuses some reads or writes, or all of them."""
    for feature in features_of(snapshot.config, table_features(snapshot)):
        if feature.read != "yes" or feature.write != "yes":
            severity = Severity.ERROR if feature.read == "no" else Severity.WARNING
            yield Finding(PROPERTIES, severity, f"{feature.name}: the table {feature.why}", feature.hint)


def services(context: WriteContext, uri: str) -> Iterator[Finding]:
    """The services that are due, with the reason, and the actions in progress."""
    run = command("maintenance run", uri, "--once")
    is_any_due = False
    for service in SERVICES:
        try:
            state = ServiceState(context)
            why = service.due(state)
        except Exception as error:
            yield finding_of(SERVICE, error)
            continue
        if why is None:
            continue
        is_any_due = True
        by_writes = service.is_done_by_writes(state) or (
            context.services.compaction.services and is_set(context.services, service.after_write)
        )
        later = "; the next write runs it" if by_writes else "; no write runs it"
        is_pressing = not by_writes or service.name == "rollback"
        severity = Severity.WARNING if is_pressing else Severity.FINE
        yield Finding(SERVICE, severity, f"{service.name} is due: {why}{later}", run)
    if not is_any_due:
        yield Finding(SERVICE, Severity.FINE, "no service is due, and no writer has died")
    timeline = context.opened.timeline
    if timeline.pending:
        texts = ", ".join(f"{instant.action} {instant.time}" for instant in timeline.pending)
        yield Finding(SERVICE, Severity.FINE, f"pending on the timeline: {texts}")
    newest = timeline.latest_time
    now = format_time(datetime.now(UTC) + timedelta(seconds=CLOCK_SECONDS), context.config.timezone)
    if newest > now:
        yield Finding(
            CLOCK,
            Severity.WARNING,
            f"the timeline has {newest}, and the clock here is not there yet: new instants follow it millisecond by"
            " millisecond",
            "set the clock of this host, where chrony runs by: sudo chronyc makestep",
        )


def indexes(snapshot: Snapshot, uri: str, *, verified: bool) -> Iterator[Finding]:
    """Yields the findings about the index of writes and the indexes of the metadata table: whether they can be read,
    and with `verified` whether they are right, which reads the keys of the whole table."""
    config = snapshot.config
    writes = index_of(snapshot, for_write=False).explain()
    metadata = snapshot.metadata
    if metadata is None:
        yield Finding(INDEX, Severity.FINE, f"writes: {writes}; there is no metadata table, folders are listed")
        return
    paths = metadata.partitions()  # raises where the listing cannot be read
    facts = list_indexes(snapshot)
    names = ", ".join(
        f"{fact.name} ({count_text(fact.file_groups, 'file group')}, {size_text(fact.bytes)})" for fact in facts
    )
    yield Finding(INDEX, Severity.FINE, f"writes: {writes}; metadata table: {names}")
    for fact in facts:
        if not fact.file_groups and paths:  # an index by partition path has no file groups before the first path
            text = f"the index {fact.name} is declared and has no file"
            yield Finding(INDEX, Severity.ERROR, text, command("indexes repair", uri, fact.name))
    if config.metadata_partitions_inflight:
        waiting = ", ".join(config.metadata_partitions_inflight)
        text = f"the build of {waiting} is not complete"
        yield Finding(INDEX, Severity.WARNING, text, command("indexes build", uri))
    if verified:
        yield from _verified(snapshot.storage, uri)
    else:
        yield Finding(
            INDEX, Severity.FINE, f"records were not compared; {command('maintenance doctor', uri, '--verify')} does"
        )


def keys(snapshot: Snapshot, uri: str, *, verified: bool) -> Iterator[Finding]:
    """The finding whether complex keys of one field are stored in two forms; with `verified` all keys are read,
    otherwise the least and greatest ones of some files."""
    config = snapshot.config
    if not config.has_two_key_forms:
        return
    slices = snapshot.file_slices()
    forms = stored_key_forms(slices if verified else slices[:_ASKED_FILES], snapshot.reader, every_key=verified)
    field = config.key_fields[0]
    if len(forms) > 1:
        text = f"some keys are stored as '{field}:1' and some as '1': a key may have a row of each"
        yield Finding(INDEX, Severity.ERROR, text, command("maintenance repair", uri, "--part", "keys"))
    elif PLAIN in forms and config.version >= NAMED_VERSION:
        text = f"keys are stored as '1', not '{field}:1': a job of real Hudi would store a second row of each key"
        mend = 't.maintenance.repair(["keys"], options={"hoodie.write.complex.keygen.new.encoding": "false"})'
        yield Finding(INDEX, Severity.WARNING, text, mend)


def _verified(storage: Storage, uri: str) -> Iterator[Finding]:
    result = verify(storage)
    if result.ok:
        yield Finding(INDEX, Severity.FINE, f"verified, no difference: {', '.join(result.checked) or 'record keys'}")
        return
    counts: dict[str, int] = {}
    missing: list[str] = []
    for row in result.differences.select(["index", "problem", "what", "key"]).to_pylist():
        counts[row["index"]] = counts.get(row["index"], 0) + 1
        is_extra = (row["index"], row["problem"]) == ("files", "extra") and row["key"] != ALL_PARTITIONS
        if is_extra and len(missing) < _NAMED_FILES and storage.head(row["what"]) is None:
            missing.append(row["what"])
    if missing:
        yield Finding(
            FILES,
            Severity.ERROR,
            f"missing, and the table lists it, so that reads of its rows fail: {', '.join(missing)}",
            "restore the file from a copy, or roll back the commit that wrote it, before any index is repaired",
        )
    for name, count in sorted(counts.items()):
        is_of_rows = name not in result.checked
        mend = (
            command("maintenance repair", uri, "--part", "duplicates") if is_of_rows else command("indexes repair", uri)
        )
        yield Finding(INDEX, Severity.ERROR, f"{name}: {count_text(count, 'difference')} from the table's rows", mend)


def checks(snapshot: Snapshot, uri: str, *, verified: bool) -> Iterator[Finding]:
    """The findings about the table's checks: other programs that write the table do not know them. Rows are read where
    few bytes have to be read for a check, and with `verified` always."""
    for check in snapshot.config.checks:
        named = f"{check.name} ({check.condition})"
        slices = snapshot.file_slices() if check.on == "table" else broken_rows(snapshot, check).plan.slices
        if not verified and sum(file_slice.size for file_slice in slices) > _READ_BYTES:
            text = f"{named}: rows were not read; {command('maintenance doctor', uri, '--verify')} does"
            yield Finding(CHECKS, Severity.FINE, text)
            continue
        run = run_check(snapshot, check)
        severity = Severity.WARNING if check.on_failure == "warn" else Severity.ERROR
        if run:
            yield Finding(CHECKS, Severity.FINE, str(run))
        else:
            text = f"{run}: they were written without the check, or before it"
            yield Finding(CHECKS, severity, text, command("checks run", uri, check.name, "--output", "json"))


def files(context: WriteContext, uri: str) -> Iterator[Finding]:
    """The number of files of the table, and the partition paths with many small ones."""
    snapshot = context.opened
    slices = snapshot.file_slices()
    size = sum(file_slice.size for file_slice in slices)
    paths = len({file_slice.partition for file_slice in slices})
    text = f"{count_text(len(slices), 'file slice')} in {count_text(paths, 'partition path')}, {size_text(size)}"
    yield Finding(FILES, Severity.FINE, text)
    if not can_merge(context):
        return
    crowded = partitions_with_small_files(context, snapshot, _SMALL_FILES)
    if crowded:
        worst = max(crowded, key=lambda path: crowded[path])
        yield Finding(
            FILES,
            Severity.WARNING,
            f"{count_text(len(crowded), 'partition path')} with {_SMALL_FILES} small files or more;"
            f" {worst or 'the table'} has {crowded[worst]}",
            command("maintenance merge-small-files", uri, "--min-files", str(_SMALL_FILES)),
        )


def archive(snapshot: Snapshot, uri: str) -> Iterator[Finding]:
    """The lengths of the active and the archived timeline."""
    config, timeline = snapshot.config, snapshot.timeline
    stored = list(snapshot.storage.list(config.archive_folder))
    size = sum(info.size for info in stored)
    active = count_text(len(timeline.instants), "instant")
    text = f"{active} on the active timeline; archived: {count_text(len(stored), 'file')}, {size_text(size)}"
    if len(timeline.instants) <= _LONG_TIMELINE:
        yield Finding(ARCHIVE, Severity.FINE, text)
        return
    oldest_pending = next((i for i in timeline.pending if i.action is not Action.SAVEPOINT), None)
    because = (
        f"; the pending {oldest_pending.action} {oldest_pending.time} retains what follows it" if oldest_pending else ""
    )
    yield Finding(
        ARCHIVE, Severity.WARNING, f"{text}: every call lists them{because}", command("maintenance archive", uri)
    )
