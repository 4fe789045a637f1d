"""Tables whose files hold a few texts: the real transactions, on rows that cost nothing.

A file is JSON: for each key the marks that writes have left on it. A write reads what is stored, adds its mark to the
keys it is about, and writes it back: a write that gets lost, comes twice or comes in half shows. Real are the timeline,
locks, heartbeats, markers, transactions, the conflict rules, rollbacks, plans, the views of file slices, and, where the
table has one, the metadata table. Not real are Parquet, log blocks, indexes and the merge of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.concurrency.markers import write_marker
from lakebed.config.settings import WriteSettings
from lakebed.format.file_names import base_file_name, log_file_name, new_file_id
from lakebed.index.base import Hashing, Index
from lakebed.metadata.lookups import snapshot_of
from lakebed.model import RECORD_KEY, WRITER_ID, Action, CommitMetadata, FileSlice
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.properties.file import load_table_config
from lakebed.services.service import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage, _buckets
from lakebed.timeline.bodies.plans import CompactionPlan, RequestedBody, compaction_body, compaction_operations
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import WriteStatus

Marks = dict[str, list[str]]
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}'
TOKEN = "0-0-0"
KEYS = ("a", "b")
SETTINGS = WriteSettings(
    column_stats=False, metadata_compact_after=3, lock_wait_seconds=100_000.0, heartbeat_interval_seconds=60.0
)


class TinyHash(Hashing):
    """A key's file group follows from the key."""

    key_hash: Any = object()


class TinyIndex(Index):
    """Finds keys by reading all files; with `hashes` a key's file group follows from the key."""

    name = "tiny"
    is_global = False

    def __init__(self, hashes: bool) -> None:
        self._hashing = TinyHash() if hashes else None

    @property
    def hashing(self) -> Hashing | None:
        return self._hashing

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        pass

    def update(self, *_: Any) -> None:
        pass


class TinyTable:
    """One table as a process of its own sees it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.config = load_table_config(storage)
        self.index: Any = TinyIndex(self.config.properties.get("lakebed.index.type") == "bucket")

    @property
    def is_mor(self) -> bool:
        return self.config.table_type == "mor"

    def upsert(self, keys: Iterable[str], mark: str) -> None:
        """Leave a mark on these keys."""
        action = Action.DELTACOMMIT if self.is_mor else Action.COMMIT
        unique = "nowhere" if self.index.hashing else "partition"
        tx: Any = WriteTransaction(self._context(), action, "UPSERT", unique=unique)
        with tx:
            with tx.begin():
                tx.prepare_metadata()
                tx.request()
            tx.inflight()
            tx.commit(self._written(tx, list(keys), mark), SCHEMA, {})

    def _written(self, tx: Any, keys: list[str], mark: str) -> list[WriteStatus]:
        stored = [(file_slice, read_slice(self.storage, file_slice)) for file_slice in tx.snapshot.file_slices()]
        found: list[WriteStatus] = []
        for file_slice, marks in stored:
            mine = [key for key in keys if key in marks]
            if not mine:
                continue
            if self.is_mor:
                found.append(self._append(tx.instant, file_slice, {key: [mark] for key in mine}))
            else:
                changed = {key: [*old, mark] if key in mine else old for key, old in marks.items()}
                found.append(self._base(tx.instant, file_slice.file_id, changed, file_slice))
        known = {key for _, marks in stored for key in marks}
        for number, key in enumerate(key for key in keys if key not in known):
            bucket = 1000 + ord(key[0]) if self.index.hashing else None
            found.append(self._base(tx.instant, new_file_id(tx.instant, "", number, bucket=bucket), {key: [mark]}))
        return found

    def _base(self, instant: str, file_id: str, marks: Marks, before: FileSlice | None = None) -> WriteStatus:
        name = base_file_name(file_id, TOKEN, instant)
        write_marker(self.storage, instant, "", name, "MERGE" if before else "CREATE")
        body = json.dumps(marks).encode()
        self.storage.write(name, body)
        old = before.base_file if before else None
        return WriteStatus(
            "",
            file_id,
            name,
            prev_commit=before.instant if before else "null",
            prev_base_file=old.name if old else None,
            num_writes=len(marks),
            num_inserts=0 if before else len(marks),
            file_size=len(body),
            changes=b"" if before else body,
        )

    def _append(self, instant: str, before: FileSlice, marks: Marks) -> WriteStatus:
        name = log_file_name(before.file_id, instant, 1, TOKEN)
        write_marker(self.storage, instant, "", name, "CREATE")
        body = json.dumps(marks).encode()
        self.storage.write(name, body)
        base = before.base_file
        return WriteStatus(
            "",
            before.file_id,
            name,
            prev_commit=instant,
            base_file=base.name if base else "",
            log_files=[*(log.name for log in before.log_files), name],
            log_version=1,
            log_offset=0,
            num_updates=len(marks),
            file_size=len(body),
            changes=b"",
        )

    def schedule(self) -> str | None:
        """Plan a compaction of whatever has log files."""

        def body(snapshot: Snapshot, instant: str) -> RequestedBody | None:
            busy = snapshot.timeline.pending_compaction
            slices = [s for s in snapshot.file_slices() if s.log_files and (s.partition, s.file_id) not in busy]
            return compaction_body(CompactionPlan(tuple(slices))) if slices else None

        with self._service() as tx:
            return tx.instant if tx.request(body, run=False) is not None else None

    def compact(self, instant: str) -> None:
        """Run a plan."""
        with self._service() as tx:
            tx.take_up(instant)
            plan = tx.timeline.plan(tx.timeline.find(instant, Action.COMPACTION))
            statuses: list[WriteStatus] = []
            for op in compaction_operations(plan):
                marks = json.loads(self.storage.read(op.base_file)) if op.base_file else {}
                for log in op.log_files:
                    add(marks, json.loads(self.storage.read(log)))
                before = SimpleNamespace(instant=op.instant, base_file=SimpleNamespace(name=op.base_file))
                statuses.append(self._base(instant, op.file_id, marks, before))  # type: ignore[arg-type]
            stats = {"": tuple(s.stat() for s in statuses)} if statuses else {}
            extra = {WRITER_ID: tx.writer_id, "schema": SCHEMA}
            tx.finish(CommitMetadata(COMPACT_OPERATION, stats, {}, extra), statuses)

    def _service(self) -> Any:
        return ServiceTransaction(self._context(), Action.COMPACTION, COMPACT_OPERATION)

    def _context(self) -> Any:
        return SimpleNamespace(
            storage=self.storage,
            config=self.config,
            settings=SETTINGS,
            engine=SimpleNamespace(is_distributed=True),
            writer_notes=lambda writer_id: {WRITER_ID: writer_id},
            index=self.index,
            watched_keys=lambda _schema: (),
            stream_batch=None,
            stage=None,
        )

    def pending_compactions(self) -> list[str]:
        timeline = load_timeline(self.storage, self.config)
        return [i.time for i in timeline.pending if i.action is Action.COMPACTION]

    def snapshot(self, *, use_metadata: bool = True) -> Snapshot:
        config = load_table_config(self.storage)
        return snapshot_of(self.storage, config, load_timeline(self.storage, config), use_metadata=use_metadata)

    def read(self, *, use_metadata: bool = True) -> Marks:
        """All keys with their marks. Raises `AssertionError` where a key comes twice."""
        found: Marks = {}
        for file_slice in self.snapshot(use_metadata=use_metadata).file_slices():
            for key, marks in read_slice(self.storage, file_slice).items():
                assert key not in found, f"key {key} comes twice"
                found[key] = marks
        return found


def read_slice(storage: Storage, file_slice: FileSlice) -> Marks:
    """The keys of a slice with their marks."""
    base = file_slice.base_file
    marks: Marks = json.loads(storage.read(base.path)) if base is not None else {}
    for log in file_slice.log_files:
        add(marks, json.loads(storage.read(log.path)))
    return marks


def add(marks: Marks, more: Marks) -> None:
    for key, new in more.items():
        marks[key] = [*marks.get(key, []), *new]


def stored_keys(reader: Any, file_slice: FileSlice, _columns: Sequence[str]) -> pa.RecordBatch:
    """Stands for the reader of stored keys."""
    keys = sorted(json.loads(reader.storage.read(file_slice.base_file.path))) if file_slice.base_file else []
    return pa.record_batch({RECORD_KEY: pa.array(keys, pa.string())})


def inserted_keys(_reader: Any, statuses: Sequence[WriteStatus]) -> list[Any]:
    """Stands for what says which keys a write inserted."""
    return [SimpleNamespace(keys=pa.array(json.loads(s.changes or b"{}"), pa.string()), partition="") for s in statuses]


@cache
def prepared(kind: str, index: str, version: int, metadata: bool) -> Mapping[str, Any]:
    """The objects of a table with two file groups, one for each of `KEYS`."""
    name = f"tiny-{kind}-{index}-{version}-{metadata}"
    uri = f"memory://{name}/t"
    lakebed.create(
        uri,
        pa.schema([("id", pa.string())]),
        key="id",
        type=kind,  # type: ignore[arg-type]
        index=index,
        buckets=8 if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.metadata.enable": metadata},
    )
    for key in KEYS:
        TinyTable(open_storage(uri)).upsert([key], "first")
    objects = dict(_buckets[name].objects)
    MemoryStorage.drop(name)
    return objects
