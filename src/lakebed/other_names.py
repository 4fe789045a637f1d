"""Names of other libraries, and what stands in their place in lakebed: the messages of AttributeErrors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

OF_PACKAGE = {
    "connect": "lakebed.open(uri) opens a table, lakebed.Warehouse(uri) all tables of a folder",
    "read": "lakebed.open(uri).to_arrow() reads a table, lakebed.open(uri).scan(...) a part of it",
    "read_table": "lakebed.open(uri).to_arrow() reads a table",
    "write_table": "lakebed.load(uri, rows, key=...) makes a table, lakebed.open(uri).upsert(rows) changes one",
    "write_deltalake": "lakebed.load(uri, rows, key=...) makes a table, lakebed.open(uri).upsert(rows) changes one",
    "DeltaTable": "lakebed.open(uri) gives a lakebed.Table",
    "HudiTable": "lakebed.open(uri) gives a lakebed.Table",
    "forPath": "lakebed.open(uri) opens a table",
    "query": "lakebed.sql(text) runs a query",
}
OF_TABLE = {
    "connect": "the table is open; lakebed.sql(text, {'t': t}) runs SQL on it",
    "append": "t.insert(rows) adds rows; t.upsert(rows) also updates the rows of stored keys",
    "write": "t.upsert(rows), t.insert(rows) and t.bulk_insert(rows) write",
    "overwrite": 't.insert_overwrite(rows, "table") replaces all rows',
    "vacuum": "t.maintenance.clean() deletes what no retained commit needs",
    "optimize": "t.maintenance.compact() merges log files, t.maintenance.cluster() small files",
    "compact": "t.maintenance.compact()",
    "cluster": "t.maintenance.cluster()",
    "clean": "t.maintenance.clean()",
    "expire_snapshots": "t.maintenance.clean() deletes what no retained commit needs",
    "snapshots": "t.versions lists the commits",
    "metadata": "t.properties and t.timeline",
    "version": "t.versions numbers the commits; the version of the table's format is a property",
    "load_as_version": "t.scan(as_of=version)",
    "to_pyarrow_table": "t.to_arrow()",
    "to_pyarrow_dataset": "t.dataset()",
    "toDF": "t.scan().to_spark()",
    "to_df": "t.to_pandas(), t.to_polars() or t.scan().to_spark()",
    "filter": "t.scan(where=...)",
    "where": "t.scan(where=...)",
    "select": "t.scan(columns=[...])",
    "query": "lakebed.sql(text, {'t': t})",
    "savepoint": "t.savepoints.create(name=...)",
    "publish": "t.catalogs.publish(...)",
    "alias": "t.merge(rows, target=..., source_alias=...)",
}
OF_MERGE = {
    "whenMatchedUpdateAll": "when_matched_update()",
    "whenMatchedUpdate": "when_matched_update(values)",
    "whenMatchedDelete": "when_matched_delete()",
    "whenNotMatchedInsertAll": "when_not_matched_insert()",
    "whenNotMatchedInsert": "when_not_matched_insert(values)",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update(values)",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete()",
    "when_matched_update_all": "when_matched_update()",
    "when_not_matched_insert_all": "when_not_matched_insert()",
}


def instead_of(name: str, others: Mapping[str, str], attributes: Iterable[str]) -> str:
    """What to write in place of an attribute that an object lacks: by `others`, the names of other libraries, or the
    nearest of the `attributes` that it has. Empty where nothing is near.

    >>> instead_of("vacuum", OF_TABLE, ()), instead_of("upserts", OF_TABLE, ["upsert", "insert"])
    ('t.maintenance.clean() deletes what no retained commit needs', "did you mean 'upsert'?")
    """
    public = [attribute for attribute in attributes if not attribute.startswith("_")]
    near = get_close_matches(name, public, n=1, cutoff=0.75)
    return others.get(name) or (f"did you mean {near[0]!r}?" if near else "")


OF = {"lakebed": OF_PACKAGE, "lakebed.Table": OF_TABLE, "a merge": OF_MERGE}
"""The names of other libraries by what is asked for them."""
