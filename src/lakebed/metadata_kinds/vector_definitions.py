"""Vector indexes by their definitions: the column, the metric, and the numbers that a user may choose, under the names
of Hudi's proposal for such indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakebed.config.arguments import is_integer
from lakebed.errors import CorruptFile, InvalidOption, LakebedError
from lakebed.metadata_records.definitions import VECTOR_KIND, IndexDefinition
from lakebed.metadata_records.layout import VECTOR_INDEX
from lakebed.schema.column_names import near_or_nothing
from lakebed.schema.logical_types import is_vector
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.shape import BITS as CODE_BITS
from lakebed.vector_index.shape import METRICS, Metric

METRIC: Final = "vector.metric"
CLUSTERS: Final = "vector.num_clusters"
BITS: Final = "vector.rabitq.bits"
PROBES: Final = "vector.query.nprobes"
_OPTIONS: Final = (METRIC, CLUSTERS, BITS, PROBES)
_MAX_CLUSTERS: Final = 1 << 16
DEFAULT_PROBES: Final = 16


@dataclass(frozen=True)
class VectorIndex:
    """A vector index as its definition describes it. `clusters` is None where the number follows from the rows."""

    partition: str
    column: str
    metric: Metric
    bits: int
    clusters: int | None
    probes: int

    @classmethod
    def of(cls, definition: IndexDefinition) -> VectorIndex:
        """The index of a definition. Raises `CorruptFile` for one that lakebed has not written so."""
        try:
            options = _checked(definition.options)
            (column,) = definition.source_fields
        except (LakebedError, ValueError) as cause:
            raise CorruptFile(
                f"the definition of the vector index {definition.name} is damaged: {cause}",
                hint="Drop the index and create it again.",
                context={"index": definition.name},
            ) from cause
        metric: Any = options[METRIC]
        return cls(
            definition.name,
            column,
            metric,
            int(options[BITS]),
            int(options[CLUSTERS]) if CLUSTERS in options else None,
            int(options[PROBES]),
        )

    def dimension(self, schema: pa.Schema) -> int | None:
        """The dimension of the column in this schema; None where it is no vector there, or missing."""
        at = schema.get_field_index(self.column)
        return schema.field(at).type.list_size if at >= 0 and is_vector(schema.field(at).type) else None


def vector_partition(name: str) -> str:
    """The partition of the vector index to which a user gives this name, with or without the prefix.

    >>> vector_partition("emb"), vector_partition("vector_index_emb")
    ('vector_index_emb', 'vector_index_emb')
    """
    return VECTOR_INDEX + name.removeprefix(VECTOR_INDEX)


def vector_index_definition(name: str, column: str, options: Mapping[str, Any]) -> IndexDefinition:
    """The definition of a vector index on a column. Raises `InvalidOption` for an option that there is not, and for a
    value that an option cannot have."""
    return IndexDefinition(vector_partition(name), VECTOR_KIND, "", (column,), _checked(options))


def vector_indexes(snapshot: Snapshot) -> list[VectorIndex]:
    """The complete vector indexes that this view of a table can be searched by."""
    return list(map(VectorIndex.of, complete_definitions(snapshot, VECTOR_INDEX)))


def complete_definitions(snapshot: Snapshot, prefix: str) -> list[IndexDefinition]:
    """The definitions of the complete indexes whose partitions begin so, by name."""
    if not any(name.startswith(prefix) for name in snapshot.config.metadata_partitions):
        return []
    metadata = snapshot.metadata
    if metadata is None:
        return []
    definitions = metadata.slices.definitions
    return [definitions[n] for n in sorted(metadata.slices.partitions) if n.startswith(prefix) and n in definitions]


def vector_index_of(snapshot: Snapshot, column: str, metric: Metric) -> VectorIndex | None:
    """The vector index of a table on a column for a metric; None if it has none."""
    return next((i for i in vector_indexes(snapshot) if (i.column, i.metric) == (column, metric)), None)


def _checked(options: Mapping[str, Any]) -> dict[str, str]:
    """The options as texts, with the defaults of those that are not given."""
    for key in options:
        if key not in _OPTIONS:
            raise InvalidOption(
                f"a vector index has no option {key!r}",
                hint=f"{near_or_nothing(key, _OPTIONS)}There are {', '.join(_OPTIONS)}.",
                context={"option": key},
            )
    metric = str(options.get(METRIC, "cosine")).lower()
    if metric not in METRICS:
        raise _refused(METRIC, options[METRIC], f"one of {', '.join(METRICS)}")
    checked = {
        METRIC: metric,
        BITS: str(_number(options, BITS, 8)),
        PROBES: str(_number(options, PROBES, DEFAULT_PROBES)),
    }
    if int(checked[BITS]) not in CODE_BITS:
        raise _refused(BITS, options[BITS], f"one of {', '.join(map(str, CODE_BITS))}")
    if options.get(CLUSTERS) is not None:
        clusters = _number(options, CLUSTERS, 1)
        if clusters > _MAX_CLUSTERS:
            raise _refused(CLUSTERS, clusters, f"at most {_MAX_CLUSTERS}")
        checked[CLUSTERS] = str(clusters)
    return checked


def _number(options: Mapping[str, Any], key: str, default: int) -> int:
    value = options.get(key, default)
    number = int(value) if is_integer(value) or (isinstance(value, str) and value.isdecimal()) else 0
    if number < 1:
        raise _refused(key, value, "a whole number above 0")
    return number


def _refused(key: str, value: object, accepted: str) -> InvalidOption:
    return InvalidOption(
        f"a vector index with {key} = {value!r}", hint=f"It is {accepted}.", context={"option": key, "value": value}
    )
