"""Tables as sources and models of dbt projects on DuckDB: a plugin of dbt-duckdb, named in a profile.

`python -m lakebed.dbt_plugin` prints the folder of the dbt package with the materialization `lakebed`.
"""

from lakebed.errors import UnsupportedFeature

try:
    from lakebed.dbt_plugin.plugin import Plugin
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("dbt", "dbt_common"):
        raise
    raise UnsupportedFeature("dbt-duckdb is not installed", hint="pip install 'lakebed[dbt]'") from error

__all__ = ["Plugin"]
