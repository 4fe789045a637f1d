"""Composite keys whose text other field values give as well: `a:x,b:y,b:z` is the text of (`x`, `y,b:z`) and (`x,b:y`,
`z`).

Hudi compares key texts alone. Where the fields are at hand, rows of one text whose fields differ are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, SchemaConflict, UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.expressions.key_generators import kind_of
from lakebed.expressions.key_text import SharedText
from lakebed.model import RECORD_KEY
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import is_text
from lakebed.schema.plain_arrow import as_numpy, one_array, text_scalar

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyFields:
    """The fields of a table's composite key (dotted inside structs)."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, config: TableConfig) -> KeyFields | None:
        """The key fields of a table. None if a key has one field or a user's class makes it: then its text has only one
        meaning."""
        if len(config.key_fields) < 2:
            return None
        try:
            kind_of(config.key_generator)
        except UnsupportedFeature:
            return None
        return cls(tuple(config.key_fields))

    @property
    def shared(self) -> SharedText:
        """Whether a row's key text may be the text of other field values, too."""
        return SharedText(RECORD_KEY, self.names)

    def may_share(self, keys: pa.Array) -> Positions:
        """The positions of key texts that may also be the text of other field values."""
        return np.flatnonzero(as_numpy(self.shared.of_texts(keys)))

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns with the text fields of the key: two rows with one key text can differ only in these."""
        return list(dict.fromkeys(Column(name).top_level_in(schema) for name in self._texts(schema)))

    def identities(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """A text for each row that is unique to the values of its key's text fields."""
        parts: list[pa.Array] = []
        for name in self._texts(rows.schema):
            values = self._values(rows, name)
            parts += [pc.fill_null(pc.utf8_length(values).cast(pa.string()), "-"), pc.fill_null(values, "")]
        if not parts:
            return pa.repeat(pa.scalar(""), rows.num_rows)
        return pc.binary_join_element_wise(*parts, text_scalar("/"))

    def check_equal(self, keys: pa.Array, rows: pa.Table | pa.RecordBatch, other: pa.Table | pa.RecordBatch) -> None:
        """Raise `InvalidRecord` if the rows at the same position of both, which have one key, differ in the key's
        fields."""
        names = set(self._texts(rows.schema)) & set(self._texts(other.schema))
        shared_fields = KeyFields(tuple(name for name in self.names if name in names))
        differ = pc.not_equal(shared_fields.identities(rows), shared_fields.identities(other))
        if pc.any(differ).as_py():
            at = pc.indices_nonzero(differ)[0].as_py()
            raise self._refusal(keys[at].as_py(), rows.slice(at, 1), other.slice(at, 1))

    def check_batch(self, rows: pa.Table | pa.RecordBatch, codes: Positions, several: Positions) -> None:
        """Raise `InvalidRecord` if rows with equal codes, which have the same key, differ in the key's fields.
        `several` are the positions of the rows whose code occurs more than once."""
        if RECORD_KEY not in rows.schema.names or not self._texts(rows.schema):
            return
        keys = one_array(rows.column(RECORD_KEY)).take(pa.array(several))
        at = several[self.may_share(keys)]
        if not len(at):
            return
        sharing_rows = rows.select([RECORD_KEY, *self.columns(rows.schema)]).take(pa.array(at))
        _, first, inverse = np.unique(codes[at], return_index=True, return_inverse=True)
        self.check_equal(
            one_array(sharing_rows.column(RECORD_KEY)), sharing_rows.take(pa.array(first[inverse])), sharing_rows
        )

    def _texts(self, schema: pa.Schema) -> Sequence[str]:
        """The key fields that are text columns in the schema."""
        return [name for name in self.names if _is_text(schema, name)]

    def _values(self, rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
        top, *inner = [name] if name in rows.schema.names else name.split(".")
        column = one_array(rows.column(top))
        for part in inner:
            column = pc.struct_field(column, part)
        return column.cast(pa.string())

    def _refusal(self, key: str, row: pa.Table | pa.RecordBatch, other: pa.Table | pa.RecordBatch) -> InvalidRecord:
        return InvalidRecord(
            f"two rows have the record key {key!r} and other key fields: {self._shown(row)} and {self._shown(other)}",
            hint="Hudi joins the fields of a key to one text, which is the same for these rows: change a value"
            " of one of them. To let the new row take the place of a stored one, delete lakebed.KeyText([...]) first",
            context={"record_key": key},
        )

    def _shown(self, row: pa.Table | pa.RecordBatch) -> str:
        values = {name: self._values(row, name)[0].as_py() for name in self._texts(row.schema)}
        return f"({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _is_text(schema: pa.Schema, name: str) -> bool:
    try:
        kind = Column(name).type_in(schema)
    except SchemaConflict:  # there is no such column
        return False
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind)
