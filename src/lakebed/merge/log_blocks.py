"""Which blocks of a file slice's log files count, and in which order they are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lakebed.format.log_file import BlockType, HeaderKey
from lakebed.format.log_scan import BlockHead

_DATA = (BlockType.AVRO_DATA, BlockType.HFILE_DATA, BlockType.PARQUET_DATA)


def blocks_in_merge_order(
    blocks: Iterable[BlockHead], is_visible: Callable[[str], bool], *, by_instant: bool = False
) -> list[BlockHead]:
    """Data and delete blocks, oldest first, from all blocks of a slice in the order of its files; with `by_instant` in
    the order of their instants, which the names of files that a resize of buckets brought rows to do not tell.

    `is_visible(instant)` says whether a block's instant counts. Damaged blocks are left out, and so are those in
    front of a rollback command for their instant. The blocks of one instant stay together; a log-compacted block
    stands where the newest instant that it replaces stood, instead of those.
    """
    counting: dict[str, list[BlockHead]] = {}
    for block in blocks:
        if block.type is BlockType.COMMAND:
            counting.pop(block.headers.get(HeaderKey.TARGET_INSTANT_TIME, ""), None)
        elif (block.type is BlockType.DELETE or block.type in _DATA) and is_visible(block.instant):
            counting.setdefault(block.instant, []).append(block)
    return _with_compacted(dict(sorted(counting.items())) if by_instant else counting)


def _with_compacted(by_instant: dict[str, list[BlockHead]]) -> list[BlockHead]:
    replaced_by: dict[str, str] = {}
    placed: set[str] = set()
    parts: list[Sequence[BlockHead]] = []
    for instant in reversed(by_instant):
        own = by_instant[instant]
        compacted = own[0].headers.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        if compacted:
            final = replaced_by.get(instant, instant)
            replaced_by |= {time.strip(): final for time in compacted.split(",")}
            continue
        final = replaced_by.get(instant, instant)
        if final not in placed:
            placed.add(final)
            parts.append(by_instant[final])
    return [block for part in reversed(parts) for block in part]
