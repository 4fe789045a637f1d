"""Log compaction of the metadata table: the many log blocks of a file slice become the blocks of one log file, which
stand for them until the next compaction."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.delete_block import encode_deletes
from lakebed.format.file_names import log_file_name
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, block_bytes
from lakebed.metadata.store.compaction import is_held_up, remove_leftovers
from lakebed.metadata.store.group_files import FileGroup, WrittenLog, new_token
from lakebed.metadata.store.rollback import logs_with_blocks_of
from lakebed.metadata.store.slice_merge import open_slice
from lakebed.metadata.store.store import MetadataStore
from lakebed.metadata.store.suffixes import Suffix
from lakebed.model import Action, FileSlice
from lakebed.policies.compaction import plan_log_compaction
from lakebed.timeline.bodies.plans import encode_compaction_plan
from lakebed.wording import count_text

_OPERATION = "LOG_COMPACT"
_FIRST_NATIVE_VERSION = 9


def undo_log_compactions(store: MetadataStore) -> None:
    """Take back log compactions that were cut off: the log files that they were to merge are all still there."""
    for pending in store.pending(Action.LOGCOMPACTION):
        if store.version >= 8:
            remove_leftovers(store, pending.time, store.partitions)
        else:
            for path in logs_with_blocks_of(store, pending.time):
                store.storage.delete(path)
        store.transitions.remove_pending(pending)
        store.changed()


def run_log_compaction(store: MetadataStore) -> list[str]:
    """Merge the logs of file slices that have many blocks, where the settings ask for it; gives a line about
    what was done."""
    if not store.settings.log_compaction or is_held_up(store):
        return []
    plan = plan_log_compaction(
        [
            file_slice
            for partition in store.data_config.metadata_partitions
            for file_slice in store.slices.file_slices(partition)
        ],
        least_blocks=store.settings.log_compact_after,
        count_blocks=lambda file_slice: len(store.slices.log_blocks(file_slice)),
        before=min((i.time for i in store.data_timeline.pending), default=None),
    )
    instant = store.service_time(Suffix.LOG_COMPACTION)
    if not plan.slices or instant is None:
        return []
    store.request(Action.LOGCOMPACTION, instant, encode_compaction_plan(plan))
    store.transitions.inflight(Action.LOGCOMPACTION, instant)
    written = store.parallel_map(lambda file_slice: _merge_logs(store, file_slice, instant), plan.slices)
    store.complete(Action.LOGCOMPACTION, instant, _OPERATION, [log.stat() for log in written])
    return [f"log compaction {instant} of {count_text(len(plan.slices), 'file group')}"]


def _merge_logs(store: MetadataStore, file_slice: FileSlice, instant: str) -> WrittenLog:
    started = time.monotonic()
    merge = open_slice(store.slices, file_slice)
    changes = merge.changes(with_base=False)
    present = changes.values.is_valid()
    keys, values = changes.keys.filter(present), changes.values.filter(present)
    # keys that were deleted at any time are deleted first: what follows must not be merged with the base file's records
    deleted = [layer for _, layer in merge.layers if layer is not None]
    removed = pc.unique(pa.concat_arrays([*deleted, changes.keys.filter(pc.invert(present))]))
    headers = _headers(instant, store.slices.log_blocks(file_slice), merge.schema_json)
    blocks = list[LogBlock]()
    if len(removed):
        content = encode_deletes(removed.cast(pa.string()), file_slice.partition)
        blocks.append(LogBlock(BlockType.DELETE, headers, content))
    if len(keys):
        content = write_hfile(
            keys, values, schema_json=merge.schema_json, hbase_keys=store.version < _FIRST_NATIVE_VERSION
        )
        blocks.append(LogBlock(BlockType.HFILE_DATA, headers, content))
    group: FileGroup = store.group(file_slice)
    log_instant = instant if store.version >= 8 else group.slice_instant
    name = log_file_name(group.file_id, log_instant, group.log_version, new_token())
    body = b"".join(map(block_bytes, blocks))
    store.storage.write(f"{group.partition}/{name}", body)
    millis = int((time.monotonic() - started) * 1000)
    return WrittenLog(group, instant, name, len(body), len(keys), len(removed), millis)


def _headers(instant: str, blocks: Sequence[BlockHead], schema_json: str) -> dict[int, str]:
    """A log-compacted block names the instants of the blocks that it stands for."""
    times = list(dict.fromkeys(block.instant for block in blocks))
    return {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.SCHEMA: schema_json,
        HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(times),
    }
