"""A model of a dbt project as a table: its settings, and how the rows of its query are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from lakebed.config.arguments import are_names, names_of
from lakebed.errors import InvalidOption
from lakebed.operations.once import Once
from lakebed.operations.result import WriteResult
from lakebed.table import Table

Verb = Literal["upsert", "insert", "merge", "insert_overwrite"]
_VERBS = ("upsert", "insert", "merge", "insert_overwrite")
_CLAUSES = {
    ("matched", "update"): "when_matched_update",
    ("matched", "delete"): "when_matched_delete",
    ("not_matched", "insert"): "when_not_matched_insert",
    ("not_matched_by_source", "update"): "when_not_matched_by_source_update",
    ("not_matched_by_source", "delete"): "when_not_matched_by_source_delete",
}
_MERGE_OF_ROWS = ({"when": "matched", "then": "update"}, {"when": "not_matched", "then": "insert"})
_COMBINE = "hoodie.combine.before.insert"
_KEY, _PARTITION = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.partitionpath.field"


@dataclass(frozen=True)
class Model:
    """The settings of a model: the table that it is, and how rows come into it."""

    name: str
    table: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    verb: Verb = "insert_overwrite"
    overwrite: Literal["partitions", "table"] = "table"
    on: Any = None
    clauses: Sequence[Mapping[str, Any]] = _MERGE_OF_ROWS
    create: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    full_refresh: bool = False

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Self:
        """The model of a request of the dbt package. Raises `InvalidOption` for settings that are none."""
        config: Mapping[str, Any] = request["config"]
        if config.get("unique_key"):
            raise InvalidOption("unique_key is no setting of a model in lakebed", hint="write key=... in its place")
        for name in ("key", "partition_by"):
            if not are_names(config.get(name) or ()):
                raise InvalidOption(f"{name} is the name of a column or a list of names, not {config[name]!r}")
        for name in ("create", "options"):
            if not isinstance(config.get(name) or {}, Mapping):
                raise InvalidOption(f"{name} is a map of options, not {config[name]!r}")
        key, partition_by = names_of(config.get("key") or ()), names_of(config.get("partition_by") or ())
        verb = config.get("verb") or ("upsert" if key else "insert_overwrite")
        if verb not in _VERBS:
            raise InvalidOption(f"there is no verb {verb!r} of models", hint=f"it is one of {', '.join(_VERBS)}")
        if verb in ("upsert", "merge") and not key:
            raise InvalidOption(f"a model with verb={verb!r} needs a key", hint="add key='id' to its config")
        overwrite = config.get("overwrite") or ("partitions" if partition_by else "table")
        if overwrite not in ("partitions", "table"):
            raise InvalidOption(f"overwrite is 'partitions' or 'table', not {overwrite!r}")
        return cls(
            request["model"],
            str(config.get("table") or f"{request['schema']}.{request['alias']}"),
            key,
            partition_by,
            verb,
            overwrite,
            config.get("on"),
            _clauses(config.get("clauses") or _MERGE_OF_ROWS),
            dict(config.get("create") or {}),
            dict(config.get("options") or {}),
            bool(request.get("full_refresh")),
        )

    def write(self, table: Table, rows: Any, *, complete: bool, once: Once | None) -> WriteResult:
        """Write the rows of the query in one commit; with `complete` they replace all rows of the table."""
        # a table of another key or other partitions refuses these
        named = {_KEY: ",".join(self.key), _PARTITION: ",".join(self.partition_by)}
        options: dict[str, Any] = {**{name: value for name, value in named.items() if value}, **self.options}
        if complete and self.verb == "upsert":
            options = {_COMBINE: True, **options}
        if complete:
            return table.insert_overwrite(rows, "table", progress=False, once=once, options=options)
        match self.verb:
            case "upsert":
                return table.upsert(rows, progress=False, once=once, options=options)
            case "insert":
                return table.insert(rows, progress=False, once=once, options=options)
            case "insert_overwrite":
                return table.insert_overwrite(rows, self.overwrite, progress=False, once=once, options=options)
            case "merge":
                merge = table.merge(rows, self.on)
                for clause in self.clauses:
                    arguments = {name: value for name, value in clause.items() if name not in ("when", "then")}
                    merge = getattr(merge, _CLAUSES[clause["when"], clause["then"]])(**arguments)
                return merge.execute(once=once, options=options)


def _clauses(clauses: Any) -> tuple[Mapping[str, Any], ...]:
    """The clauses of a merge. Raises `InvalidOption` for one that says not what it does."""
    listed = (clauses,) if isinstance(clauses, Mapping) else tuple(clauses)
    for clause in listed:
        if not isinstance(clause, Mapping) or (clause.get("when"), clause.get("then")) not in _CLAUSES:
            raise InvalidOption(
                f"a clause of a merge has no such form: {clause!r}",
                hint="for example {'when': 'matched', 'then': 'update', 'set': {'n': 't.n + s.n'}, 'condition': ...};"
                f" when and then are {', '.join(f'{when} and {then}' for when, then in _CLAUSES)}",
            )
    return listed
