"""Rows whose keys' places are known, put where they go: for every index that looks keys up over partition paths."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.engine.base import Engine, Rows
from lakebed.expressions.base import Column, RowExpression
from lakebed.index.pair_moves import PlacedRows, merges_in_pairs, moved_in_pairs
from lakebed.index.simple import columns_of_names, moved, stored_ordering
from lakebed.merge.locations import BooleanLiteral, Coalesce, Differ
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, FILE_ID, INSTANT, OLD_PARTITION, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot

PLACE = pa.schema([(name, pa.string()) for name in (OLD_PARTITION, FILE_ID, INSTANT)])
"""What an index that looks keys up adds to rows: partition path, file id and commit of keys, null for new ones."""


def at_places(joined: Rows, own: Sequence[str], engine: Engine, position: Sequence[str] = ()) -> Rows:
    """Rows of a global index where their keys are, whatever partition path they name. `joined` has the rows' `own`
    columns but the partition path, and the place of their key, with its `POSITION` where that is named."""
    place = {PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)), **columns_of_names(FILE_ID, INSTANT, *position)}
    return engine.derive(joined, place, keep=[name for name in own if name != PARTITION_PATH])


def moved_from_places(
    joined: Rows, own: Sequence[str], snapshot: Snapshot, engine: Engine, position: Sequence[str] = ()
) -> PlacedRows:
    """Rows at their places, those that name another partition path there if they win over the stored row. `joined` is
    as for `at_places`, and evaluated several times.

    What they have to win over is read from the file groups that such rows come from, and from no other.
    """
    rules = MergeRules.of_table(snapshot.config)
    if merges_in_pairs(rules, own):
        return moved_in_pairs(joined, own, snapshot, engine, rules, position)
    ordering = rules.ordering if set(rules.ordering) <= set(own) else ()
    if not ordering:
        return PlacedRows(moved(joined, engine, rules, own, 0, position))
    leaving = engine.filter(joined, Differ(OLD_PARTITION, PARTITION_PATH))
    pairs = engine.aggregate(leaving, [OLD_PARTITION, FILE_ID])
    groups = set(zip(*(pairs.column(name).to_pylist() for name in (OLD_PARTITION, FILE_ID)), strict=True))
    if not groups:
        place: dict[str, RowExpression] = {
            PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
            **columns_of_names(FILE_ID, INSTANT, *position),
            DELETE: Column(DELETE) if DELETE in own else BooleanLiteral(False),
        }
        return PlacedRows(engine.derive(joined, place, keep=[n for n in own if n != DELETE]))
    slices = [s for s in snapshot.file_slices({p for p, _ in groups}) if (s.partition, s.file_id) in groups]
    types = engine.schema(joined)
    values = stored_ordering(snapshot, slices, engine, {name: types.field(name).type for name in ordering})
    compared = engine.join(joined, values, [RECORD_KEY, FILE_ID], "left")
    return PlacedRows(moved(compared, engine, rules, own, len(ordering), position), slices)
