"""`parse_filter`: a SQL condition or a pyarrow expression to a `Predicate`, with Spark's rules for types and nulls."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.filters.predicates import Predicate


def parse_filter(text_or_expression: str | pc.Expression, schema: pa.Schema, *, zone: str = "UTC") -> Predicate:
    """The filter as a tree over the columns of `schema`.

    SQL is Spark's: names in any case, three-valued logic, constants cast to the column's type. `zone` is the time zone
    of times that name none. What only Spark can evaluate becomes `Opaque` inside the tree and does not stop the rest
    from pruning. Raises `InvalidOption` for SQL that does not parse and for unknown columns, naming the nearest.

    >>> parse_filter("a >= 2.5 and b in ('x', null)", pa.schema({"a": pa.int64(), "b": pa.string()})).root.parts[0]
    Compare(left=Column(path=('a',), type=DataType(int64)), op='>', right=Literal(value=2, type=DataType(int64)))
    """
    if isinstance(text_or_expression, pc.Expression):
        from lakebed.filters.arrow import predicate_of_expression

        return predicate_of_expression(text_or_expression, schema)
    if not isinstance(text_or_expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(
            f"a filter is SQL text or a pyarrow.compute.Expression, not {type(text_or_expression).__name__}",
            hint="for example filter=\"city = 'Oslo' and ts >= '2024-01-01'\"",
        )
    # the SQL parser takes long to import, and most reads have no filter
    from lakebed.filters.sql import parse_condition

    return parse_condition(text_or_expression, schema, zone)
