"""The pages of indexes: what there is and how old it is, whether it agrees with the files, how much it rules out, which
index the table's writes would do best with, and what vector indexes and text indexes are made of.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

from lakebed.inspector.rendering import Pages, echo, is_of_this_site, section
from lakebed.inspector.tables import InspectedTable, UnknownPage

_MAX_COLUMNS = 100
# The kinds of the indexes that have layers, and how many layers and gaps of one are listed.
_LAYERED = ("vector index", "text index")
_MAX_LAYERS = 50
# The recall of a vector index is measured by so many searches for so many rows each.
_QUERIES, _NEAREST = 20, 10
# The false-positive rate from which a filter hardly helps, and the share of opened files up to which a column prunes.
_POOR_FILTER, _PRUNES, _PRUNES_A_LITTLE = 0.1, 0.25, 0.75


def overview(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The index of writes, the indexes of the metadata table, and their check."""
    with table.opened() as opened:
        indexes = opened.indexes
        values = {
            "writes": section(lambda: {"name": indexes.index.name, "reason": indexes.reason, "text": repr(indexes)}),
            "listed": section(indexes.list),
            "skew": section(lambda: indexes.skew().to_arrow().to_pylist()),
        }
    return pages.show(table, "indexes.html", {**values, "check": table.check, "layered": _LAYERED}, request)


def ranges(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the columns that rule out files: the overlap of their ranges, and one of them as a picture."""
    column = request.query_params.get("column")
    with table.opened() as opened:
        if column is not None:
            plot = section(lambda: opened.indexes.ranges([column]).plot(column))
            return pages.show(table, "part_range.html", {"column": column, "plot": plot}, request)
        ranges_section = section(lambda: opened.indexes.ranges().to_arrow().to_pylist())
    rows = (ranges_section.content or [])[:_MAX_COLUMNS]
    for row in rows:
        few = "rules out some files" if row["overlap"] <= _PRUNES_A_LITTLE else "rules out few files"
        row["verdict"] = "rules out most files" if row["overlap"] <= _PRUNES else few
    more = max(0, len(ranges_section.content or ()) - _MAX_COLUMNS)
    return pages.show(
        table, "part_ranges.html", {"problem": ranges_section.problem, "rows": rows, "more": more}, request
    )


def bloom(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The false-positive rates of bloom filters."""
    with table.opened() as opened:
        rates_section = section(lambda: opened.indexes.bloom_rates())
    values: dict[str, Any] = {"problem": rates_section.problem, "files": 0}
    if rates_section.content is not None and rates_section.content.num_rows:
        rates = rates_section.content["rate"]
        worst = rates_section.content.sort_by([("rate", "descending")]).slice(0, 5).to_pylist()
        values |= {"files": len(rates), "mean": pc.mean(rates).as_py(), "most": pc.max(rates).as_py(), "worst": worst}
        values |= {"accepting": pc.sum(pc.greater_equal(rates, 1.0)).as_py(), "poor": _POOR_FILTER}
    return pages.show(table, "part_bloom.html", values, request)


def advice(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with the costs of writes under each index. Looks some keys up."""
    advice_section = section(lambda: table.open().indexes.advise())
    return pages.show(
        table, "part_advice.html", {"problem": advice_section.problem, "advice": advice_section.content}, request
    )


def verification(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The state of the check of all indexes, which `start` begins."""
    if request.query_params.get("start") and is_of_this_site(request):
        table.check.start()
    return pages.show(table, "part_check.html", {"check": table.check}, request)


def layers(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page of a vector index or a text index; without a name that of the first one. The recall is measured only
    where the address has `recall`."""
    with table.opened() as opened:
        names = [facts.name for facts in opened.indexes.list() if facts.kind in _LAYERED]
    name = request.query_params.get("index", names[0] if names else None)
    if name is not None and name not in names:
        raise UnknownPage(f"The table has no vector index or text index {echo(name)}.")
    values: dict[str, Any] = {"names": names, "name": name, "queries": _QUERIES, "nearest": _NEAREST}
    if name is not None and request.query_params.get("recall") and is_of_this_site(request):
        recall = section(lambda: table.open().indexes.recall(name, rows=_QUERIES, k=_NEAREST))
        return pages.show(table, "part_recall.html", {**values, "recall": recall}, request)
    with table.opened() as opened:
        content = section(lambda: None if name is None else opened.indexes.layers(name))
        plot = section(lambda: content.content.plot() if content.content else None)
    return pages.show(table, "layers.html", {**values, "index": content, "plot": plot, "most": _MAX_LAYERS}, request)
