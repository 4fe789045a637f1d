"""Whether key texts can be misread: a file whose keys cannot has a mark in its footer.

Hudi's bucket index takes the hash fields out of the text of a whole key (`city:Oslo,id:7`). A text in another key field
that holds a comma and a colon may look like one of them (`id` = `7,city:Rome`), and move the row. Where no text holds
both the bucket follows from the hash fields alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.key_generators import KeyGenerator
from lakebed.expressions.key_text import CompositeKey

PLAIN_KEYS = "lakebed.plain.keys"
"""Footer key of a base file: the key fields of which no text holds both a comma and a colon, with commas between."""


class PlainKeys:
    """Tracks whether no text of some columns has both a comma and a colon, one batch after another.

    >>> seen = PlainKeys(["id"])
    >>> seen.add(pa.record_batch({"id": ["a,b", "a:b", None]})), seen.hold
    (None, True)
    >>> seen.add(pa.record_batch({"id": ["7,city:Rome"]})), seen.hold
    (None, False)
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self.hold = True

    def add(self, rows: pa.RecordBatch) -> None:
        """Check more rows. Rows without one of the columns count as texts that can be misread."""
        if self.hold:
            self.hold = all(name in rows.schema.names and _is_plain(rows.column(name)) for name in self.fields)

    def add_file(self, footer: Mapping[str, str]) -> None:
        """Add the rows of a base file, by the mark in its footer."""
        self.hold = self.hold and has_plain_keys(footer, self.fields)

    def footer(self) -> dict[str, str]:
        """The mark in the footer of a file with these rows."""
        return {PLAIN_KEYS: ",".join(self.fields)} if self.hold else {}


def has_plain_keys(footer: Mapping[str, str], fields: Sequence[str]) -> bool:
    """Whether a footer has the mark for all these fields."""
    return set(fields) <= set(footer.get(PLAIN_KEYS, "").split(","))


def unhashed_texts(keys: KeyGenerator, hash_fields: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """The key fields with free text that are not hashed: their values may look like a hash field in a key's text."""
    key = keys.record_key
    unhashed = [t for t in key.texts if t.column not in hash_fields] if isinstance(key, CompositeKey) else []
    return tuple([text.column for text in unhashed if text.is_free_text(schema)])


def _is_plain(values: pa.Array) -> bool:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary
    with_comma = values.filter(pc.match_substring(values, ","))
    return not len(with_comma) or not pc.any(pc.match_substring(with_comma, ":")).as_py()
