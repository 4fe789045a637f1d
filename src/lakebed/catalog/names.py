"""What a text means that names a table: a path or a URI, a table in a catalog, or a name in the warehouse.

`table_uri` is what everything that takes the URI of a table asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.catalog.registry import find_table, is_catalog_uri
from lakebed.errors import InvalidOption, TableNotFound
from lakebed.model import WAREHOUSE, WAREHOUSE_LOCATION

# Most tables have no name: the warehouses are imported when there is one.
if TYPE_CHECKING:
    from lakebed.catalog.warehouses import Names

SCHEMAS_OF_ENGINE = frozenset({"information_schema", "main", "pg_catalog", "system", "temp"})
"""Schemas and catalogs that DuckDB has itself: in SQL their names mean these, so no database has one."""


def is_name(text: str | os.PathLike[str]) -> bool:
    """Whether a text has the form of a name, not of a path or a URI: words with a dot between them.

    >>> is_name("sales.orders"), is_name("./sales.orders"), is_name("s3://lake/orders"), is_name("orders")
    (True, False, False, False)
    """
    if not isinstance(text, str):  # a Path has no ./ ahead
        return False
    return "." in text and text[:1] not in ".~" and not any(character in text for character in "/\\:")


@lru_cache(maxsize=8)
def _of_environment(uri: str, _pid: int, location: str) -> Names:
    from lakebed.catalog.warehouses import names_of

    return names_of(uri, None, location or None if is_catalog_uri(uri) else None)


_used: ContextVar[Names | None] = ContextVar("warehouse", default=None)


@contextmanager
def using(names: Names) -> Generator[None]:
    """Let names mean the tables of this warehouse, in place of that of the environment, while the block runs."""
    token = _used.set(names)
    try:
        yield
    finally:
        _used.reset(token)


def warehouse_names() -> Names | None:
    """The names of the warehouse of `using`, else of the one in `LAKEBED_WAREHOUSE`; None if there is neither."""
    used = _used.get()
    uri = os.environ.get(WAREHOUSE, "").strip()
    if used is not None or not uri:
        return used
    return _of_environment(uri, os.getpid(), os.environ.get(WAREHOUSE_LOCATION, ""))


def table_uri(text: str | os.PathLike[str], *, new: bool = False) -> str:
    """The URI of the table that a text means: a path or URI, a table in a catalog (`hive://host:9083/sales/orders`), or
    a name in the warehouse of `LAKEBED_WAREHOUSE`. With `new` it is the URI at which a table of that name is created.

    Without that variable `sales.orders` is a path, as `./sales.orders` always is. Raises `InvalidOption` for a text
    that is no name in the warehouse, and `TableNotFound` for one that a catalog does not have.

    >>> table_uri("s3://lake/trips")
    's3://lake/trips'
    """
    uri = os.fspath(text)
    if is_catalog_uri(uri):
        return find_table(uri)
    if not is_name(text):
        return uri
    names = warehouse_names()
    if names is None:
        return uri
    try:
        name = names.parse(uri)
    except InvalidOption as error:
        raise InvalidOption(error.message, hint=f"{error.hint}; a path begins with ./", context=error.context) from None
    return names.new_table_uri(name) if new else names.table_uri(name)


def uri_of_path(text: str | os.PathLike[str]) -> str:
    """The text of a path or URI that means the same place everywhere: a path object is a path, though it looks like a
    name in a warehouse.

    >>> from pathlib import Path
    >>> uri_of_path("sales.orders"), uri_of_path(Path("sales.orders"))
    ('sales.orders', './sales.orders')
    """
    uri = os.fspath(text)
    return uri if isinstance(text, str) or not is_name(uri) else f"./{uri}"


def target_uri(text: str | os.PathLike[str]) -> str:
    """The URI of the table that a text means, or at which it is created if there is none."""
    try:
        return table_uri(text)
    except TableNotFound:  # a name that a catalog does not have
        return table_uri(text, new=True)


def catalog_of_new_table(text: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The catalog and the name in which a new table is registered; None for a path, and for a name in a folder."""
    names = warehouse_names() if is_name(text) else None
    return None if names is None or names.catalog is None else (names.catalog, os.fspath(text))
