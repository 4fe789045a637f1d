"""A SQL condition as text that means the same in every Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakebed.filters.literals import SparkOnly
from lakebed.filters.predicates import Column
from lakebed.filters.spark_text import quote_name

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.expressions.core import Expression

Edit = tuple[int, int, str]
_TIMESTAMP = "TIMESTAMP"


def session_text(text: str, tree: Any, dialect: type[Dialect], column: Callable[[Expression], Column]) -> str:
    """The condition with columns in the table's spelling and `TIMESTAMP_LTZ` for `TIMESTAMP`.

    A session may tell names apart by case (`spark.sql.caseSensitive`), and `spark.sql.timestampType` decides what
    `TIMESTAMP` is. `column` finds the column that a node names.
    """
    edits = [*_names(tree, column)]
    if _TIMESTAMP in text.upper():
        edits += _types(dialect().tokenize(text))
    for start, stop, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _names(tree: Any, column: Callable[[Expression], Column]) -> Iterator[Edit]:
    for node in tree.find_all(exp.Column):
        steps = list(node.parts)
        whole = node
        while isinstance(whole.parent, exp.Dot) and whole.parent.this is whole:
            whole = whole.parent
            steps.append(whole.expression)
        try:
            path = column(whole).path
        except SparkOnly:  # a path into an array or a map: the column itself is found all the same
            steps = steps[:1]
            path = column(exp.column(steps[0].copy())).path
        for step, name in zip(steps, path, strict=True):
            start, end = step.meta.get("start"), step.meta.get("end")
            if start is not None and end is not None and step.name != name:
                yield start, end + 1, quote_name(name)


def _types(tokens: Sequence[Any]) -> Iterator[Edit]:
    """The type name in casts and before constants. A column may have that name, too."""
    kinds = ["", *(token.token_type.name for token in tokens), ""]
    for at, token in enumerate(tokens):
        before, kind, after = kinds[at : at + 3]
        if token.text.upper() != _TIMESTAMP or kind in ("IDENTIFIER", "STRING"):
            continue
        if before in ("ALIAS", "DCOLON") or after == "STRING":
            yield token.start, token.end + 1, "TIMESTAMP_LTZ"
