"""Rows of a write whose keys' places are known, put where they go: for indexes that keep places of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.engine.base import Engine, Rows
from lakebed.expressions.base import Column, RowExpression
from lakebed.index.locations import BooleanLiteral, Coalesce, Differ
from lakebed.index.pair_moves import OLD_PARTITION, merges_in_pairs, moved_in_pairs
from lakebed.index.simple import columns_of_names, moved, stored_ordering
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, FILE_ID, INSTANT, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot

PLACE = pa.schema([(name, pa.string()) for name in (OLD_PARTITION, FILE_ID, INSTANT)])
"""What an index that looks keys up adds to rows: partition path, file id and commit of keys, null for new ones."""


def at_places(found: Rows, own: Sequence[str], engine: Engine) -> Rows:
    """Every row where its key is, whatever partition path it names; `found` has the rows' `own` columns and those of
    `PLACE`."""
    place = {PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)), **columns_of_names(FILE_ID, INSTANT)}
    return engine.derive(found, place, keep=[name for name in own if name != PARTITION_PATH])


def moved_from_places(found: Rows, own: Sequence[str], snapshot: Snapshot, engine: Engine, rules: MergeRules) -> Rows:
    """Rows at their places, those that name another partition path there if they win over the stored row.

    What they have to win over is read from the file groups that such rows come from, and from no other. `found` is
    evaluated several times.
    """
    if merges_in_pairs(rules, own):
        return moved_in_pairs(found, own, snapshot, engine, rules)
    ordering = rules.ordering if set(rules.ordering) <= set(own) else ()
    if not ordering:
        return moved(found, engine, rules, own, 0)
    leaving = engine.filter(found, Differ(OLD_PARTITION, PARTITION_PATH))
    pairs = engine.aggregate(leaving, [OLD_PARTITION, FILE_ID])
    groups = set(zip(*(pairs.column(name).to_pylist() for name in (OLD_PARTITION, FILE_ID)), strict=True))
    if not groups:
        place: dict[str, RowExpression] = {
            PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
            **columns_of_names(FILE_ID, INSTANT),
            DELETE: Column(DELETE) if DELETE in own else BooleanLiteral(False),
        }
        return engine.derive(found, place, keep=[n for n in own if n != DELETE])
    slices = [s for s in snapshot.file_slices({p for p, _ in groups}) if (s.partition, s.file_id) in groups]
    types = engine.schema(found)
    values = stored_ordering(snapshot, slices, engine, {name: types.field(name).type for name in ordering})
    compared = engine.join(found, values, [RECORD_KEY, FILE_ID], "left")
    return moved(compared, engine, rules, own, len(ordering))
