"""The pages about rows: the first rows of a filter, the columns, the versions of one key, and the plan of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from starlette.requests import Request
from starlette.responses import Response

import lakebed
from lakebed.inspector.rendering import Pages, digits_of, is_asked_by_page, page_number, section
from lakebed.inspector.tables import InspectedTable
from lakebed.row_texts import kind_of, with_texts
from lakebed.wording import key_text

if TYPE_CHECKING:
    from lakebed.read.history import RowVersion

# A page looks a key up in so many commits, and lists so many files.
_LOOKUPS, _PAGE = 20, 50
_MAX_VALUE = 500
_ROLES = {
    "key": "hoodie.table.recordkey.fields",
    "partition": "hoodie.table.partition.fields",
    "ordering": "hoodie.table.ordering.fields",
}


def record(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page of a key: its location, and its versions with the row before and after each commit."""
    before = digits_of(request, "before")
    values: dict[str, Any] = {"before": before, "answer": None}
    with table.opened() as opened:
        listed = opened.properties.get("hoodie.table.recordkey.fields") or ""
        names = [name.strip() for name in listed.split(",") if name.strip()]
        parts = {name: request.query_params.get(f"key.{name}", "") for name in names if len(names) > 1}
        text = request.query_params.get("key", "")
        if not text and any(parts.values()):
            text = key_text(parts)
        values |= {"key": text, "fields": names, "parts": parts}
        if text:
            keys = lakebed.KeyText([text], typed=True)
            fields = {field.name: field for field in opened.schema if kind_of(field.type)}
            values["answer"] = section(
                lambda: {
                    "locations": [] if before else opened.locate(keys).to_pylist(),
                    "history": (history := opened.history(keys, before=before, lookups=_LOOKUPS)),
                    "versions": [_version(version, fields) for version in history],
                }
            )
    if is_asked_by_page(request) and before:
        return pages.show(table, "part_versions.html", values, request)
    return pages.show(table, "record.html", values, request)


def _version(version: RowVersion, fields: Mapping[str, pa.Field]) -> Mapping[str, Any]:
    """A version with a line for each column: its value before and after."""
    names = list(dict.fromkeys([*(version.after or ()), *(version.before or ())]))
    lines = [
        {
            "name": name,
            "before": _value(version.before, name, fields),
            "after": _value(version.after, name, fields),
            "changed": version.before is not None
            and version.after is not None
            and version.before.get(name) != version.after.get(name),
        }
        for name in names
    ]
    return {"one": version, "lines": lines}


def _value(row: Mapping[str, Any] | None, name: str, fields: Mapping[str, pa.Field]) -> str:
    """The text of a value in a row; `fields` are the columns whose values are shown as other texts."""
    if row is None:
        return ""
    value = row.get(name)
    if value is not None and name in fields:
        column = pa.array([value], fields[name].type)
        value = with_texts(pa.table([column], [name])).column(0)[0].as_py()
    return _text(value)


def _text(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def first_rows(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the first rows of a filter. No more is read than these rows take."""
    text = request.query_params.get("filter", "")

    def read(opened: lakebed.Table) -> Mapping[str, Any]:
        head = opened.scan(where=text or None).head(_PAGE + 1)
        preview = with_texts(head.slice(0, _PAGE))
        is_number = [pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t) for t in preview.schema.types]
        rows = [[_text(value) for value in row.values()] for row in preview.to_pylist()]
        columns = list(zip(preview.column_names, is_number, strict=True))
        return {"columns": columns, "rows": rows, "more": head.num_rows > _PAGE}

    with table.opened() as opened:
        values = {"filter": text, "found": section(lambda: read(opened))}
    return pages.show(table, "rows.html", values, request)


def schema(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the table's columns: their types, whether they may be null, their comments, and their roles."""

    def read(opened: lakebed.Table) -> list[Mapping[str, Any]]:
        roles: dict[str, list[str]] = {}
        for role, key in _ROLES.items():
            for name in (opened.properties.get(key) or "").split(","):
                roles.setdefault(name.strip().partition(":")[0], []).append(role)
        rows = opened.columns.to_arrow().to_pylist()
        return [{**row, "roles": ", ".join(roles.get(row["name"], ()))} for row in rows]

    with table.opened() as opened:
        columns = section(lambda: read(opened))
    return pages.show(table, "schema.html", {"columns": columns}, request)


def query(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the plan of a scan with a filter: the files that are read, and the steps that rule the others out,
    in this order. `by` is the step whose files are listed; without it those that are read are."""
    text, by, page = request.query_params.get("filter", ""), request.query_params.get("by"), page_number(request)
    with table.opened() as opened:
        columns = section(
            lambda: [(f.name, (f.metadata or {}).get(b"hudi_type", b"").decode() or str(f.type)) for f in opened.schema]
        )
        plan = section(lambda: _plan(opened, text, by, page)) if "filter" in request.query_params else None
    values = {"filter": text, "by": by, "page": page, "columns": columns, "plan": plan}
    if is_asked_by_page(request) and page and plan and plan.content:
        return pages.show(table, "part_plan_files.html", {**values, "p": plan.content}, request)
    return pages.show(table, "query.html", values, request)


def _plan(opened: lakebed.Table, text: str, by: str | None, page: int) -> Mapping[str, Any]:
    scan = opened.scan(where=text or None)
    plan, pruning = scan.plan, scan.pruning()
    slices = plan.slices
    left = total = pruning.num_rows
    steps: list[Mapping[str, Any]] = []
    for step, count in plan.pruned_by.items():
        left -= count
        steps.append({"what": step, "pruned": count, "left": left})
    by_step = pruning["pruned_by"]
    listed = pruning.filter(pc.is_null(by_step) if by is None else pc.equal(by_step, by))
    listed = listed.sort_by([("partition", "ascending"), ("file_id", "ascending")])
    return {
        "understood": str(plan.predicate) if plan.predicate is not None else "",
        "total": total,
        "kept": len(slices),
        "bytes": sum(file_slice.size for file_slice in slices),
        "logs": sum(len(file_slice.log_files) for file_slice in slices),
        "partitions": (plan.remaining_partitions, plan.total_partitions),
        "steps": steps,
        "files": listed.slice(page * _PAGE, _PAGE).to_pylist(),
        "more": max(0, listed.num_rows - (page + 1) * _PAGE),
    }
