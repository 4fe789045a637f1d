"""Which columns have stats: those the table's index definition names, and new ones while there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakebed.format.column_ranges import has_range
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.stats_types import has_room_for_all
from lakebed.metadata.layout import COLUMN_STATS, PARTITION_STATS
from lakebed.model import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.schema.arrow import leaf_paths

# Hudi's own limit to the columns that get stats when nobody names them.
MOST_COLUMNS = 32
# Indexed ahead of the table's own columns from version 8 on.
META_WITH_STATS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)

# In the definition of stats that lakebed built: ranges of floating columns count NaN, which Hudi's do not.
RANGES_OPTION = "lakebed.ranges"

Kinds = dict[str, pa.DataType]


def stats_columns(
    schema: pa.Schema,
    definition: IndexDefinition | None,
    *,
    version: int,
    populate_meta: bool,
    named: Sequence[str] = (),
    most: int = MOST_COLUMNS,
) -> Kinds:
    """The columns (Parquet paths) that a file of this schema (without meta columns) gets stats for, with their types.

    `definition` is the table's for `column_stats`, where it has one; `named` is what its user asked for. Columns that
    came to the table after the definition was made join it, up to `most`, unless the definition left some out.
    """
    kinds = dict(leaf_paths(schema))
    plain = [f.name for f in schema if f.name in kinds and has_range(f.type)]
    meta = list(META_WITH_STATS) if version >= 8 and populate_meta else []
    chosen = list(named) or plain[:most]
    if definition is not None and definition.source_fields:
        known = [c for c in definition.source_fields if c not in META_COLUMNS]
        meta = [c for c in definition.source_fields if c in META_COLUMNS]
        chosen = [*known, *_joining(plain, known, most)] if not named else chosen
    found: Kinds = dict.fromkeys(meta, pa.string())
    index_version = index_version_of(version)
    return found | {
        c: kinds[c] for c in chosen if c in kinds and has_range(kinds[c]) and has_room_for_all(kinds[c], index_version)
    }


def _joining(plain: Sequence[str], known: Sequence[str], most: int) -> list[str]:
    """Columns behind the last known one; none where an earlier one was left out on purpose."""
    positions = [plain.index(c) for c in known if c in plain]
    if not positions or len(known) >= most or set(plain[: max(positions) + 1]) - set(known):
        return []
    return list(plain[max(positions) + 1 :][: most - len(known)])


def stats_definitions(columns: Sequence[str], *, version: int) -> Mapping[str, IndexDefinition]:
    """The definition that says which columns have stats; versions before 8 keep none."""
    if version < 8:
        return {}
    definition = IndexDefinition(
        COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, tuple(columns), {RANGES_OPTION: "true"}, index_version_of(version)
    )
    return {COLUMN_STATS: definition}


def index_version_of(version: int) -> int:
    """The version of the stats that tables of this version keep: 2 notes value types."""
    return 2 if version >= 9 else 1


STATS_PARTITIONS = (COLUMN_STATS, PARTITION_STATS)
