"""Record keys: one field's text, or `f1:v1,f2:v2`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import Column, columns_of, repeat_text, sql_literal
from lakebed.expressions.key_text import KeyText

NULL_VALUE, EMPTY_VALUE = "__null__", "__empty__"


@dataclass(frozen=True, slots=True)
class SingleKey:
    """The text of one field as the record key; null where it is null or empty (no key at all).

    >>> SingleKey(KeyText("id")).arrow(pa.record_batch({"id": ["a", "", None]})).to_pylist()
    ['a', None, None]
    """

    text: KeyText

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text.columns

    def sql(self, schema: pa.Schema) -> str:
        text = self.text.sql(schema)
        return f"CASE WHEN {text} != '' THEN {text} END" if self.text.can_be_empty(schema) else text

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        text = self.text.arrow(batch)
        if not self.text.can_be_empty(batch.schema):
            return text
        empty = pc.equal(text, "")
        return pc.if_else(empty, pa.scalar(None, pa.string()), text) if pc.any(empty).as_py() else text


@dataclass(frozen=True, slots=True)
class CompositeKey:
    """`f1:v1,f2:v2` in the order of the fields; null reads `__null__`, an empty text `__empty__`; null where all are
    so.

    >>> key = CompositeKey((KeyText("a"), KeyText("b")))
    >>> key.arrow(pa.record_batch({"a": [1, 2, None], "b": ["x", "", None]})).to_pylist()
    ['a:1,b:x', 'a:2,b:__empty__', None]
    """

    texts: tuple[KeyText, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_of(self.texts)

    def sql(self, schema: pa.Schema) -> str:
        parts: list[str] = []
        present: list[str] = []
        for number, text in enumerate(self.texts):
            value = text.sql(schema)
            parts += [sql_literal(_prefix(number, text)), f"coalesce({value}, '{NULL_VALUE}')"]
            present.append(f"{value} IS NOT NULL")
            if text.can_be_empty(schema):
                parts[-1] = f"CASE WHEN {value} = '' THEN '{EMPTY_VALUE}' ELSE {parts[-1]} END"
                present[-1] = f"coalesce({value}, '') != ''"
        return f"CASE WHEN {' OR '.join(present)} THEN concat({', '.join(parts)}) END"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        parts: list[pa.Array | str] = []
        absent: pa.Array | None = None
        for number, text in enumerate(self.texts):
            value = text.arrow(batch)
            empty = pc.fill_null(pc.equal(value, ""), True)
            absent = empty if absent is None else pc.and_(absent, empty)
            shown = pc.fill_null(
                pc.replace_with_mask(value, pc.fill_null(pc.equal(value, ""), False), pa.scalar(EMPTY_VALUE)),
                NULL_VALUE,
            )
            parts += [_prefix(number, text), shown]
        if absent is None:
            return repeat_text(None, batch.num_rows)
        key = pc.binary_join_element_wise(*parts, "")
        return pc.if_else(absent, pa.scalar(None, pa.string()), key)


@dataclass(frozen=True, slots=True)
class SharedText:
    """Whether the text of a composite key, in a column, may be that of other field values, too: a field holds the name
    of a later one as it stands in the text, or one is null or empty, or the text that stands for that.

    >>> shared = SharedText("k", ("a", "b"))
    >>> shared.of_texts(pa.array(["a:x,b:y", "a:x,b:y,b:z", "a:__null__,b:y"])).to_pylist()
    [False, True, True]
    """

    column: str
    fields: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        text = Column(self.column).sql(schema)
        terms = [f"instr({text}, {sql_literal(value)}) > 0" for value in (NULL_VALUE, EMPTY_VALUE)]
        for mark in self._marks:
            left = f"replace({text}, {sql_literal(mark)}, '')"
            terms.append(f"length({text}) - length({left}) > {len(mark)}")
        return f"({' OR '.join(terms)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return self.of_texts(batch.column(self.column))

    def of_texts(self, keys: pa.Array) -> pa.Array:
        """The same of an array of key texts."""
        shared = pc.match_substring(keys, NULL_VALUE)
        shared = pc.or_(shared, pc.match_substring(keys, EMPTY_VALUE))
        for mark in self._marks:
            shared = pc.or_(shared, pc.greater(pc.count_substring(keys, mark), 1))
        return shared

    @property
    def _marks(self) -> list[str]:
        return [f",{name}:" for name in self.fields[1:]]


def _prefix(number: int, text: KeyText) -> str:
    return f"{',' if number else ''}{text.column}:"
