"""The kind `expr_index_*`: ranges of a function's results in files and partition paths, or bloom filters over them."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.kind import LaterLayers, MetadataKind
from lakebed.metadata.kinds.partition_stats import narrows_ranges
from lakebed.metadata.kinds.stats_merge import StatsUnion
from lakebed.metadata.layout import BLOOM_FILTERS, EXPRESSION_INDEX
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm


def _is_overruled(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    found = definition()
    has_ranges = found is not None and found.type != BLOOM_FILTERS
    return has_ranges and narrows_ranges(records, form, later, definition)


def _describe(definition: IndexDefinition | None) -> str | None:
    if definition is None or definition.function in ("", definition.name):
        return None
    filters = ", bloom filters" if definition.type == BLOOM_FILTERS else ""
    return f"expression index: {definition.function}{filters}"


KIND = MetadataKind(
    EXPRESSION_INDEX,
    is_prefix=True,
    file_groups=2,
    union=StatsUnion(),
    is_overruled=_is_overruled,
    build_position=40,
    describe=_describe,
)
