"""The arguments of `lakebed.create` as texts: properties of CREATE TABLE, and options of a write that creates its
table."""

from __future__ import annotations

from typing import Any

from lakebed.errors import InvalidOption

_LISTS = ("key", "ordering", "hash_fields", "indexes")
_NUMBERS = ("buckets", "table_version")
_TEXTS = ("type", "index", "partition_buckets", "merge", "sort")
_HUDI_NAMES = {"primarykey": "key", "orderingfields": "ordering", "precombinefield": "ordering"}

PARTITION_BY = "partition_by"
"""The argument for which CREATE TABLE has a clause."""
ARGUMENTS = (*_LISTS, *_NUMBERS, *_TEXTS)
"""The arguments that a text may name, by their names in `lakebed.create`."""
SPELLINGS = ("primaryKey", "orderingFields", "preCombineField", *ARGUMENTS)
"""All names of these arguments, those of Hudi's SQL first."""


def argument_name(key: str) -> str:
    """The argument of a key, in any case and by Hudi's names; any other key in lower case.

    >>> argument_name("primaryKey"), argument_name("Buckets"), argument_name("hoodie.table.name")
    ('key', 'buckets', 'hoodie.table.name')
    """
    return _HUDI_NAMES.get(key.lower(), key.lower())


def argument_value(name: str, text: str) -> Any:
    """The value of an argument from its text. Raises `InvalidOption` for a text that is no number where one is needed.

    >>> argument_value("key", "id, day"), argument_value("buckets", "8"), argument_value("type", "MOR")
    (['id', 'day'], 8, 'mor')
    """
    if name in _LISTS or name == PARTITION_BY:
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in _NUMBERS:
        if not text.strip().isdecimal():
            raise InvalidOption(f"the property {name} takes a number, not {text!r}", context={"property": name})
        return int(text)
    return text.lower() if name == "type" else text
