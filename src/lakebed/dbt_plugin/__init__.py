"""Tables as sources and models of dbt projects on DuckDB: a plugin of dbt-duckdb, which a profile names.

`python -m lakebed.dbt_plugin` prints the folder of the dbt package with the materialization `lakebed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import UnsupportedFeature

if TYPE_CHECKING:
    from lakebed.dbt_plugin.plugin import Plugin

__all__ = ["Plugin"]


def __getattr__(name: str) -> type[Plugin]:
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from lakebed.dbt_plugin.plugin import Plugin
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dbt", "dbt_common"):
            raise
        raise UnsupportedFeature("dbt-duckdb is not installed", hint="pip install 'lakebed[dbt]'") from error
    return Plugin
