"""Log files with damage of every kind: the blocks that are whole, as they were, and `CorruptFile` with path and offset
for those that are not; never other rows, a raw error, a hang, or memory beyond bounds.

20,000 cases with LAKEBED_FUZZ=all; otherwise a part of them, another one each day. The format has no checksums: damage
that leaves all lengths as they are may give other values, and of those only their number is asked.
"""

from __future__ import annotations

import resource
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.wrappers import Wrapped
from lakebed.format.data_block import open_data_block
from lakebed.format.delete_block import decode_deletes
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, decode_positions, scan_blocks
from lakebed.format.sources import BytesSource
from support.mutated_logs import Damaged, damaged, logs
from support.sampling import FUZZ, is_small, todays
from support.time_limit import Hangs, limited

NAME = "p/.a_1.log.1_0-1-0"
SECONDS_A_CASE = 20
GROWTH_KB = 3 << 19
MAX_POSITIONS = 1 << 16


@dataclass(frozen=True)
class Block:
    """One block as it was read: where it stands, its bytes, how many records, their values or why there are none."""

    offset: int
    frame: bytes
    kind: BlockType
    count: int
    values: Any


def read(data: bytes) -> list[Block] | str:
    """The blocks that are no damage, or why the file cannot be scanned."""
    try:
        heads = scan_blocks(BytesSource(data, NAME))
    except (CorruptFile, UnsupportedFeature) as error:
        if error.context["path"] != NAME or not 0 <= error.context["offset"] < len(data):
            raise ValueError(error.context) from error
        return str(error)
    assert [head.offset for head in heads] == [0, *(head.end for head in heads[:-1])][: len(heads)]
    return [block_of(head, data) for head in heads if head.type is not BlockType.CORRUPT]


def block_of(head: BlockHead, data: bytes) -> Block:
    frame = data[head.offset : head.end]
    try:
        count, values = values_of(head)
    except (CorruptFile, UnsupportedFeature) as error:
        if (error.context.get("path"), error.context.get("offset")) != (NAME, head.offset):
            raise ValueError(error.context) from error
        return Block(head.offset, frame, head.type, -1, str(error))
    return Block(head.offset, frame, head.type, count, values)


def values_of(head: BlockHead) -> tuple[int, Any]:
    positions = head.header(HeaderKey.RECORD_POSITIONS)
    places = None if positions is None else decode_positions(positions, MAX_POSITIONS, NAME, head.offset).tolist()
    if head.type is BlockType.COMMAND:
        return 0, places
    if head.type is BlockType.DELETE:
        deletes = decode_deletes(head.read(), NAME, head.offset)
        deletes.keys.validate(full=True)
        ordering = [plain(one) for one in (deletes.ordering, *deletes.fields)]
        return len(deletes), (deletes.keys.to_pylist(), deletes.partitions.to_pylist(), ordering, places)
    block = open_data_block(head, NAME)
    rows = block.read(block.schema.names)
    rows.validate(full=True)
    assert rows.num_rows == block.rows
    return rows.num_rows, (str(rows.schema), [repr(column.to_pylist()) for column in rows.columns], places)


def plain(wrapped: Wrapped) -> Any:
    values = {branch: (rows.tolist(), repr(column.to_pylist())) for branch, (rows, column) in wrapped.values.items()}
    return wrapped.branch.tolist(), values


@cache
def originals(whole: bytes) -> list[Block]:
    found = read(whole)
    assert not isinstance(found, str)
    return found


def wrong(case: Damaged) -> str:
    """What is wrong with the answer; empty where nothing is."""
    before = originals(case.whole)
    try:
        with limited(SECONDS_A_CASE):
            found = read(case.data)
    except Hangs:
        return "hangs"
    except Exception as error:
        return f"raw {error!r}"
    if isinstance(found, str):
        # the head of a block whose lengths agree is broken: nobody can say what the file holds
        return "" if case.kind in ("flipped", "overwritten", "lied", "reframed") else f"refused: {found}"
    known = {block.frame: block for block in before}
    by_offset = {block.offset: block for block in found}
    shift = len(case.data) - len(case.whole)
    for block in before:
        end = block.offset + len(block.frame)
        at = block.offset if end <= case.first else block.offset + shift
        untouched = end <= case.first or block.offset >= len(case.whole) - case.behind
        if untouched and (at not in by_offset or by_offset[at].frame != block.frame):
            return f"the block at {block.offset} is lost"
    for block in found:
        same = known.get(block.frame)
        if same is not None and same.values != block.values:
            return f"the block at {block.offset} has other values"
        if same is None and case.kind in ("cut", "shortened", "lengthened") and block.count >= 0:
            # bytes of another log that were put in between may be a whole block of it
            came = case.kind == "lengthened" and any(block.frame in log for log in logs())
            if not came:
                return f"a block at {block.offset} that never was"
        counts = {one.count for one in before if one.kind is block.kind}
        if same is None and case.kind in ("flipped", "overwritten", "lied") and block.count not in (-1, 0, *counts):
            return f"the block at {block.offset} has {block.count} records"
    return ""


@pytest.mark.rest
def test_damaged_logs_give_the_intact_blocks_or_an_error() -> None:
    seen, bad = Counter[str](), list[str]()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in todays(range(20_000), 40, FUZZ):
        case = damaged(number)
        seen[case.kind] += 1
        found = wrong(case)
        if found:
            bad.append(f"case {number}, {case.kind} at {case.first}: {found}")
    assert not bad, f"{len(bad)} of {seen.total()}: {bad[:20]}"
    assert min(seen.values()) > (2 if is_small() else 10)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < GROWTH_KB
