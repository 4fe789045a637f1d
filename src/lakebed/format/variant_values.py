"""The values at paths of variants, as DuckDB expressions that give what Spark's `variant_get` gives."""

from __future__ import annotations

import re
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption
from lakebed.format.variants import duckdb_type, quoted_text
from lakebed.schema.logical_types import descriptor_of
from lakebed.schema.plain_arrow import has_map, is_list
from lakebed.schema.type_names import column_type

# Spark's positions are integers of 32 bits.
_MAX_POSITION: Final = 2**31 - 1
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")
# A column of a table has no such type, and takes int for it.
_SMALL_INTEGERS: Final = frozenset(
    ("tinyint", "smallint", "byte", "short", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16)))
)
_INTEGER: Final = "[+-]?[0-9]+"
_NUMBER: Final = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_FLOAT: Final = rf"{_NUMBER}|[+-]?(?i:inf|infinity|nan)"
_DAY: Final = "[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"


def value_type(declared: Any, name: str) -> pa.DataType:
    """The type of values that are taken out of variants, by its SQL name or as an Arrow type; `name` is what asks for
    it. Raises `InvalidOption` for a vector, a blob, a variant and a map, which no value of a variant is, and for
    integers of 8 and 16 bits."""
    is_small = str(declared).strip().lower() in _SMALL_INTEGERS
    kind = None if is_small else column_type(declared, name)
    if kind is None or descriptor_of(pa.field(name, kind)) or has_map(kind):
        raise InvalidOption(
            f"{name} gives no values of the type {declared}",
            hint="take bigint, int, double, decimal(10, 2), string, boolean, date, timestamp, binary, or an array or"
            " struct of these",
            context={"type": str(declared)},
        )
    return kind


def value_at(variant: str, path: str, kind: pa.DataType, *, invalid: str) -> str:
    """The DuckDB expression for what is at a path of the expression `variant`, as a value of a type; a value that is
    not of the type is an error, or null (`invalid`)."""
    for step in path_steps(path):
        # DuckDB counts from 1
        index = f"{step + 1}::UINTEGER" if isinstance(step, int) else quoted_text(step)
        variant = f"variant_extract({variant}, {index})"
    return _Values("CAST" if invalid == "error" else "TRY_CAST").of(variant, kind)


class _Values:
    """Builds DuckDB expressions for values of variants, by the rules of Spark: fractions of integers are cut off, the
    texts of objects and lists are JSON, names of fields are compared with their case."""

    def __init__(self, cast: str) -> None:
        self._cast = cast
        self._numbers = count()

    def of(self, variant: str, kind: Any) -> str:
        """The value of the expression `variant` as a type."""
        stored = f"variant_typeof({variant})"
        is_object, is_array = f"{stored} LIKE 'OBJECT%'", f"{stored} LIKE 'ARRAY%'"
        json, text = f"({variant})::JSON::VARCHAR", f"trim(({variant})::VARCHAR)"
        refused = "NULL"
        if self._cast == "CAST":
            refused = f"error(left({json}, 60) || {quoted_text(f' is no {duckdb_type(kind)}')})"
        if is_list(kind):
            element = f"element_{next(self._numbers)}"
            elements = f"CAST({variant} AS VARIANT[]), lambda {element}: {self.of(element, kind.value_type)}"
            return self._chosen(stored, [(is_array, f"list_transform({elements})")], refused)
        if pt.is_struct(kind):
            parts = [(quoted_text(part.name), part.type) for part in kind]
            fields = ", ".join(f"{n}: {self.of(f'variant_extract({variant}, {n})', part)}" for n, part in parts)
            return self._chosen(stored, [(is_object, f"{{{fields}}}")], refused)
        if pt.is_string(kind):
            return f"CASE WHEN {is_object} OR {is_array} THEN {json} ELSE ({variant})::VARCHAR END"
        value, cases = self._scalar(variant, text, stored, kind)
        return self._chosen(stored, [(f"{is_object} OR {is_array}", refused), *cases], value, texts=refused)

    def _scalar(self, variant: str, text: str, stored: str, kind: Any) -> tuple[str, list[tuple[str, str]]]:
        """The value of a variant that is neither a list nor an object, and the cases in which it is another one."""
        target = duckdb_type(kind)

        def cast(value: str) -> str:
            return f"{self._cast}({value} AS {target})"

        def texts(pattern: str, value: str = text) -> tuple[str, str]:
            return f"{stored} = 'VARCHAR' AND regexp_full_match({text}, '{pattern}')", cast(value)

        is_float, is_decimal = f"{stored} IN ('DOUBLE', 'FLOAT')", f"{stored} LIKE 'DECIMAL%'"
        cases: list[tuple[str, str]] = []
        if pt.is_integer(kind):
            cases.append((is_float, cast(f"trunc(({variant})::DOUBLE)")))
            cases.append((is_decimal, cast(f"regexp_replace({text}, '[.].*', '')")))
            cases.append(texts(_INTEGER))
        elif pt.is_decimal(kind):
            cases += [(is_float, cast(text)), texts(_NUMBER)]  # of the shortest text, as Java has it
        elif pt.is_floating(kind):
            cases.append(texts(_FLOAT))
        elif pt.is_date(kind):
            cases.append(texts(f"{_DAY}([ T].*)?", f"regexp_extract({text}, '^{_DAY}')"))
        elif pt.is_timestamp(kind):
            cases.append(texts(f"{_DAY}([ T].*)?"))
        elif pt.is_boolean(kind):
            cases.append(texts(".*"))
        elif pt.is_binary(kind):
            cases.append((f"{stored} = 'VARCHAR'", f"encode(({variant})::VARCHAR)"))
        return cast(variant), cases

    @staticmethod
    def _chosen(stored: str, cases: list[tuple[str, str]], otherwise: str, *, texts: str = "") -> str:
        """The value of the first case that holds; `texts` is that of other texts. A null is a null."""
        listed = [(f"{stored} = 'VARIANT_NULL'", "NULL"), *cases]
        if texts:
            listed.append((f"{stored} = 'VARCHAR'", texts))
        return f"CASE {' '.join(f'WHEN {when} THEN {value}' for when, value in listed)} ELSE {otherwise} END"


def path_steps(path: str) -> list[str | int]:
    """The names of fields and the positions in lists of a path."""
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else -1
    while 0 <= at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            at = -1
            break
        name, number, *quoted = match.groups()
        if number is not None and int(number) > _MAX_POSITION:
            raise InvalidOption(
                f"{path!r} has the position {number}, and lists have at most {_MAX_POSITION:,} values",
                hint="correct the path",
                context={"path": path},
            )
        steps.append(int(number) if number is not None else next(t for t in (name, *quoted) if t is not None))
        at = match.end()
    if at < 0:
        raise InvalidOption(
            f"{path!r} is no path into a variant",
            hint="paths begin with $: $.name, $.list[0], $['a name']",
            context={"path": path},
        )
    return steps
