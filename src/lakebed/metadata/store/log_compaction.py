"""Log compaction of the metadata table: the many log blocks of a file slice become the blocks of one log file, which
stand for them until the next compaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.delete_block import encode_deletes
from lakebed.format.file_names import log_file_name
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock, block_bytes
from lakebed.format.log_scan import BlockHead
from lakebed.metadata.store.compaction import is_held_up, remove_leftovers
from lakebed.metadata.store.group_files import FileGroup, WrittenLog, new_token
from lakebed.metadata.store.rollback import logs_with_blocks_of
from lakebed.metadata.store.slice_merge import open_slice
from lakebed.metadata.store.store import OwnTable
from lakebed.model import Action, FileSlice
from lakebed.timeline.service_plans import encode_compaction_plan

_OPERATION = "LOG_COMPACT"
# Digits that version 6 puts behind the last delta commit.
_SUFFIX = "005"
_FIRST_NATIVE_VERSION = 9


def undo_log_compactions(own: OwnTable) -> None:
    """Take back log compactions that were cut off: what they would have merged is all still there."""
    for pending in own.pending(Action.LOGCOMPACTION):
        if own.version >= 8:
            remove_leftovers(own, pending.time, own.partitions)
        else:
            for path in logs_with_blocks_of(own, pending.time):
                own.storage.delete(path)
        own.transitions.remove_pending(pending)
        own.changed()


def run_log_compaction(own: OwnTable) -> list[str]:
    """Merge the logs of file slices that have many blocks, where the settings ask for it; says what was done."""
    if not own.settings.log_compaction or is_held_up(own):
        return []
    slices = [
        before
        for partition in own.partitions
        for file_slice in own.slices.file_slices(partition)
        if len((before := _before_pending(own, file_slice)).log_files) >= own.settings.log_compact_after
        and len(own.slices.log_blocks(before)) >= own.settings.log_compact_after
    ]
    instant = _instant(own)
    if not slices or instant is None:
        return []
    own.request(Action.LOGCOMPACTION, instant, encode_compaction_plan(slices, log_compaction=True))
    own.transitions.inflight(Action.LOGCOMPACTION, instant)
    written = own.side_by_side(lambda file_slice: _merge_logs(own, file_slice, instant), slices)
    own.complete(Action.LOGCOMPACTION, instant, _OPERATION, [log.stat() for log in written])
    return [f"log compaction {instant} of {len(slices)} file groups"]


def _before_pending(own: OwnTable, file_slice: FileSlice) -> FileSlice:
    """The slice with the logs alone that no pending instant of the data table can come before: the merged block stands
    where the last of them stood, with all that older ones say."""
    first = min((i.time for i in own.data_timeline.pending), default=None)
    if first is None:
        return file_slice
    return replace(file_slice, log_files=tuple(log for log in file_slice.log_files if log.instant < first))


def _merge_logs(own: OwnTable, file_slice: FileSlice, instant: str) -> WrittenLog:
    started = time.monotonic()
    merge = open_slice(own.slices, file_slice)
    changes = merge.changes(with_base=False)
    there = changes.values.is_valid()
    keys, values = changes.keys.filter(there), changes.values.filter(there)
    # what was deleted at any time goes first: records of the base file are no part of what came behind the delete
    deleted = [gone for _, gone in merge.layers if gone is not None]
    gone = pc.unique(pa.concat_arrays([*deleted, changes.keys.filter(pc.invert(there))]))
    headers = _headers(instant, own.slices.log_blocks(file_slice), merge.schema_json)
    blocks = list[LogBlock]()
    if len(gone):
        blocks.append(LogBlock(BlockType.DELETE, headers, encode_deletes(gone.cast(pa.string()), file_slice.partition)))
    if len(keys):
        content = write_hfile(
            keys, values, schema_json=merge.schema_json, hbase_keys=own.version < _FIRST_NATIVE_VERSION
        )
        blocks.append(LogBlock(BlockType.HFILE_DATA, headers, content))
    group: FileGroup = own.group(file_slice)
    log_instant = instant if own.version >= 8 else group.slice_instant
    name = log_file_name(group.file_id, log_instant, group.log_version, new_token())
    body = b"".join(map(block_bytes, blocks))
    own.storage.write(f"{group.partition}/{name}", body)
    return WrittenLog(group, instant, name, len(body), len(keys), len(gone), int((time.monotonic() - started) * 1000))


def _headers(instant: str, blocks: Sequence[BlockHead], schema_json: str) -> dict[int, str]:
    """A log-compacted block names the instants of the blocks that it stands for."""
    times = list(dict.fromkeys(block.instant for block in blocks))
    return {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.SCHEMA: schema_json,
        HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(times),
    }


def _instant(own: OwnTable) -> str | None:
    if own.version >= 8:
        return own.new_time()
    last = max(i.time[:17] for i in own.timeline.commits if i.action is Action.DELTACOMMIT)
    return None if any(i.time == last + _SUFFIX for i in own.timeline.instants) else last + _SUFFIX
