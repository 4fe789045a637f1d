"""The pages of docs/ that are made from code: `python tools/reference_pages.py docs`.

Options and features come from their tables (`option_pages`), the API from signatures and docstrings, the
command line from its own help.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import concept_pictures
import error_pages
import option_pages
import typer
from room_picture import room_picture

import lakebed
from lakebed.cli import main as program_main

MADE = "<!-- made by `make docs`; edit the code instead -->\n"
_WIDTH = 100
# Functions of `import lakebed`, and of the modules that it names.
_FUNCTIONS = (
    "create",
    "open",
    "load",
    "write",
    "convert",
    "sql",
    "list_tables",
    "drop",
    "ingest",
    "stream_into",
    "vector",
    "blob",
)
_MODULES = ("maintenance", "indexes", "spark", "polars", "variant")
# What a program holds in its hands after a call of the table: each class with the members that are there for it.
_READS = (
    ("lakebed.read.scan", "Results", None),
    ("lakebed.read.scan", "Scan", ("where", "select", "files", "available", "pruning", "explain")),
    ("lakebed.read.incremental", "Changes", ("end",)),
    ("lakebed.read.bucket_join", "BucketJoin", ("where", "select", "explain")),
    ("lakebed.read.cdc", "ChangeLog", ("select", "end")),
    ("lakebed.read.diff", "Diff", None),
    ("lakebed.read.diff", "DiffSummary", None),
    ("lakebed.table_consumers", "ConsumedBatch", None),
    ("lakebed.statements.duckdb_query", "QueryResult", None),
    ("lakebed.read.dataset", "TableDataset", ("schema", "scan", "scanner", "to_table", "to_batches", "count_rows")),
)
# What keeps a table in shape, and what it shows of itself: the views of `Table`.
_UPKEEP = (
    ("lakebed.table_maintenance", "MaintenanceView"),
    ("lakebed.table_savepoints", "SavepointsView"),
    ("lakebed.table_catalogs", "CatalogsView"),
)
_VIEWS = (
    ("lakebed.table_columns", "ColumnsView"),
    ("lakebed.table_checks", "ChecksView"),
    ("lakebed.table_blobs", "BlobsView"),
    ("lakebed.table_blobs", "BlobReferences"),
    ("lakebed.table_consumers", "ConsumersView"),
    ("lakebed.table_consumers", "ConsumerState"),
    ("lakebed.table_indexes", "IndexesView"),
    ("lakebed.table_indexes", "SkewView"),
    ("lakebed.table", "StagedTable"),
    ("lakebed.table_versions", "VersionsView"),
    ("lakebed.table_versions", "Version"),
    ("lakebed.table_views", "TimelineView"),
    ("lakebed.table_views", "FilesView"),
    ("lakebed.table_views", "FeaturesView"),
)
GIVEN = (
    "DataFiles",
    "IngestEvent",
    "IngestJob",
    "IngestPoll",
    "IngestResult",
    "IngestSource",
    "KeyText",
    "Merger",
    "Once",
)
_INTROS = {
    "functions": "What a program needs first: `import lakebed`.",
    "modules": "Functions of modules that `import lakebed` names: `lakebed.spark.create_views(...)`.",
    "table": "`lakebed.create` and `lakebed.open` return one.",
    "warehouse": "Tables by their names: see [the page](../warehouse.md).",
    "maintenance": "`Table.maintenance`, `savepoints` and `catalogs` give these: what keeps a table in shape.",
    "reads": "`Table.scan`, `join`, `changes`, `cdc` and `diff` give these; nothing is read before a method asks for"
    " rows.",
    "views": "`Table.columns`, `checks`, `blobs`, `indexes`, `consumers`, `stage`, `versions`, `timeline`, `files` and"
    " `features` give these; each prints as a table.",
    "results": "What writes and services give; each prints in a line or two, `to_dict()` gives plain values.",
    "arguments": "Classes of values that calls take.",
}
# Members that are there for lakebed itself, or in every class of results.
_LEFT_OUT = frozenset({"to_dict", "apply"})


def api_page() -> str:
    """docs/api.md: the groups of the API with what is in each, and the errors."""
    parts = ["# The API\n", MADE, "\nEach group has a page with the signature and an example of everything in it.\n\n"]
    parts.append("| group | |\n|---|---|\n")
    for section in api_sections():
        names = ", ".join(f"`{_shown_name(path)}`" for path, _ in section.objects)
        parts.append(f"| [{section.title}](api/{section.name}.md) | {names} |\n")
    table = ", ".join(f"`{name}`" for name in _names(lakebed.Table))
    parts.append(f"\n## The members of a table\n\n{table}.\n")
    for module, name in _UPKEEP:
        members = ", ".join(f"`{member}`" for member in _names(_named(module, name)) if member != "to_arrow")
        parts.append(f"\n`t.{name.removesuffix('View').lower()}`: {members}.\n")
    parts.append("\n## Errors\n\nAll are `lakebed.LakebedError`s and can be imported from `lakebed`.\n\n")
    parts.append("| error | exit code of the command line | may be tried again | |\n|---|---|---|---|\n")
    errors = [getattr(lakebed, name) for name in lakebed.__all__]
    for error in (e for e in errors if inspect.isclass(e) and issubclass(e, lakebed.LakebedError)):
        again = "yes" if error.retryable else ""
        parts.append(f"| `{error.__name__}` | {error.exit_code} | {again} | {_first_paragraph(error)} |\n")
    return "".join(parts)


def group_page(section: ApiSection) -> str:
    """docs/api/NAME.md: what is in a group, from signatures and docstrings."""
    parts = [f"# {section.title}\n", MADE, f"\n{section.intro}\n"]
    for path, members in section.objects:
        thing = _found(path)
        if inspect.isclass(thing):
            is_table = thing is lakebed.Table
            parts += [_text(thing), *_members(thing, "Table", None, 2)] if is_table else _class(thing, members)
        elif callable(thing):
            parts.append(_function(thing, path, 2))
        else:
            parts.append(_constant(path))
    return "".join(parts)


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _shown_name(path: str) -> str:
    """The name by which callers know it: functions with their module, classes by themselves."""
    return path.rpartition(".")[2] if inspect.isclass(_found(path)) else path


@dataclass(frozen=True)
class ApiSection:
    """A page of the API on the documentation site: the path of each object, and the members to show (None: all)."""

    name: str
    title: str
    intro: str
    objects: Sequence[tuple[str, Sequence[str] | None]]


def api_sections() -> list[ApiSection]:
    """The groups of the API; each is a page below docs/api."""
    functions = [(f"lakebed.{name}", None) for name in _FUNCTIONS]
    listed = [(one, name) for one in _MODULES for name in getattr(lakebed, one).__all__]
    # a type is no function
    modules = [
        (f"lakebed.{one}.{name}", None) for one, name in listed if callable(getattr(getattr(lakebed, one), name))
    ]
    reads = [(f"{module}.{name}", shown or _names(_named(module, name))) for module, name, shown in _READS]
    upkeep, views = ([(f"{m}.{name}", _names(_named(m, name))) for m, name in part] for part in (_UPKEEP, _VIEWS))
    results = [(f"{cls.__module__}.{cls.__name__}", _names(cls)) for cls in _results()]
    arguments = [(f"lakebed.{name}", _names(getattr(lakebed, name))) for name in GIVEN]
    groups: list[tuple[str, str, Sequence[tuple[str, Sequence[str] | None]]]] = [
        ("functions", "Functions", functions),
        ("table", "Table", [("lakebed.Table", _names(lakebed.Table))]),
        ("warehouse", "Warehouse", [("lakebed.Warehouse", _names(lakebed.Warehouse))]),
        ("maintenance", "Maintenance, savepoints, catalogs", upkeep),
        ("reads", "Reads", reads),
        ("views", "Views", views),
        ("modules", "Spark, polars, several tables", modules),
        ("results", "Results", results),
        ("arguments", "Arguments", arguments),
    ]
    return [ApiSection(name, title, _INTROS[name], objects) for name, title, objects in groups]


def _names(cls: type) -> list[str]:
    """The fields, methods and properties of a class that docs/api.md shows."""
    of_data = [one.name for one in fields(cls) if not one.name.startswith("_")] if is_dataclass(cls) else []
    return [*of_data, *(name for name, _ in _public(cls))]


def _named(module: str, name: str) -> type:
    return getattr(importlib.import_module(module), name)


def _results() -> list[type]:
    """The classes of lakebed that methods of a table and its views return, but for those that have a section."""
    shown = {name for _, name, *_ in (*_READS, *_UPKEEP, *_VIEWS)} | {"Table"}
    # iterating over a view gives features
    found: dict[str, type] = {
        "WriteResult": lakebed.WriteResult,
        "Feature": _named("lakebed.properties.features", "Feature"),
    }
    for owner in (lakebed.Table, *(_named(*view) for view in (*_UPKEEP, *_VIEWS))):
        modules = (sys.modules[part.__module__] for part in _parts(owner))
        space = {name: found for module in modules for name, found in names_of(module).items()}
        for _, member in _public(owner):
            function: Any = member.fget if isinstance(member, property) else member
            annotation = str(inspect.signature(function).return_annotation)
            for word in annotation.replace("[", " ").replace("]", " ").replace(",", " ").split():
                cls = space.get(word)
                if inspect.isclass(cls) and cls.__module__.startswith("lakebed.") and is_dataclass(cls):
                    found.setdefault(word, cls)
    return [cls for name, cls in found.items() if name not in shown]


def names_of(module: ModuleType) -> dict[str, object]:
    """What the annotations of a module can name: also what it imports for them alone."""
    found = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lakebed"):
            imported = importlib.import_module(node.module or "")
            found |= {one.asname or one.name: getattr(imported, one.name, None) for one in node.names}
    return found


def _class(cls: type, shown: Sequence[str] | None = None) -> Iterator[str]:
    yield f"\n## {cls.__name__}\n"
    yield _text(cls)
    if is_dataclass(cls):
        names = [f for f in fields(cls) if not f.name.startswith("_")]
        yield "\n" + "".join(f"- `{f.name}: {_in_place_of_variables(cls, str(f.type))}`\n" for f in names)
    yield from _members(cls, cls.__name__, shown)


def _members(cls: type, owner: str, shown: Sequence[str] | None = None, level: int = 3) -> Iterator[str]:
    for name, member in _public(cls):
        if shown is not None and name not in shown:
            continue
        if isinstance(member, property):
            kind = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"\n{'#' * level} {owner}.{name}\n\n```text\n{name}: {kind}\n```\n{_text(member)}"
        else:
            yield _function(member, f"{owner}.{name}", level)


def _in_place_of_variables(cls: type, annotation: str) -> str:
    """The annotation with the types that a class names for the type variables of its base."""
    for base in vars(cls).get("__orig_bases__", ()):
        variables = getattr(get_origin(base), "__parameters__", ())
        for variable, kind in zip(variables, get_args(base), strict=True):
            annotation = re.sub(rf"\b{variable.__name__}\b", kind.__name__, annotation)
    return annotation


def _parts(cls: type) -> list[type]:
    """The classes that a class is documented by: itself, and for the table those that it is put together of, for what a
    service did what all services have."""
    parts = [one for one in cls.__mro__ if one.__module__.startswith("lakebed.table")]
    if cls is lakebed.Table:
        return [parts[-1], *parts[:-1]]
    return [cls, *(one for one in cls.__mro__[1:] if one.__module__ == "lakebed.services.driver")]


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in (one for part in _parts(cls) for one in vars(part).items()):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        if isinstance(member, property) or inspect.isfunction(member):
            yield name, member


def _function(function: Any, name: str, level: int) -> str:
    return f"\n{'#' * level} {name}\n\n```text\n{_call(function, name.rpartition('.')[2])}\n```\n{_text(function)}"


def _constant(path: str) -> str:
    """A value of a module, with the text below it in the source."""
    module, _, name = path.rpartition(".")
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    at = next(
        number
        for number, node in enumerate(body)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]
    )
    match body[at + 1]:
        case ast.Expr(ast.Constant(str(text))):
            return f"\n## {path}\n\n{text}\n"
        case _:
            return f"\n## {path}\n"


def _call(function: Any, name: str) -> str:
    signature = inspect.signature(function)
    rows: list[str] = []
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in rows:
            rows.append("*")
        if p.name != "self":
            rows.append(parameter(p))
    back = f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(rows)}){back}"
    return line if len(line) <= _WIDTH else f"{name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){back}"


def parameter(p: inspect.Parameter) -> str:
    """A parameter with its type and default, as in a signature."""
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    default = "" if p.default is p.empty else f" = {p.default!r}"
    annotation = "" if p.annotation is p.empty else f": {p.annotation}"
    return f"{stars}{p.name}{annotation}{default}"


def _text(thing: Any) -> str:
    """A docstring as Markdown: examples are in blocks of their own."""
    text = inspect.getdoc(thing)
    return f"\n{fenced_examples(text)}\n" if text else ""


def fenced_examples(text: str) -> str:
    """The text of a docstring with its examples in fenced blocks.

    >>> fenced_examples("The sum.\\n\\n>>> 1 + 1\\n2").splitlines()[-2:]
    ['', '```']
    """
    out: list[str] = []
    in_example = False
    for line in text.splitlines():
        if line.startswith(">>>") and not in_example:
            out.append("```python")
            in_example = True
        elif in_example and not line.strip():
            out += ["", "```"]
            in_example = False
        out.append(line)
    if in_example:
        out += ["", "```"]
    return "\n".join(out)


def _first_paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()).replace("|", "\\|")


def cli_page() -> str:
    """docs/cli.md: every command with its arguments and options, from the program's own help."""
    program: Any = typer.main.get_command(program_main.app)
    parts = [
        "# The command line\n",
        MADE,
        "\n`lakebed COMMAND --help` shows the same. Commands that show something take `--output`: a table for the eye,"
        "\n`json`, `ndjson` or `csv` for programs.\n\n",
        f"{_sentence(program_main.main.__doc__)}\n",
    ]
    for name, command in commands(program, "lakebed"):
        parts.append(f"\n## {name}\n\n{_sentence(command.help)}\n")
        parts.append(_parameters(command, name))
        examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
        parts.append("\n```bash\n" + "\n".join(examples) + "\n```\n")
    return "".join(parts)


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The names and commands of a program, at any depth."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _parameters(command: Any, name: str) -> str:
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)[1:], *command.collect_usage_pieces(context)[:1]])
    records = [p.get_help_record(context) for p in command.params if p.name != "help"]
    records = [(names.replace("<list[str]>", "<str>..."), text) for names, text in filter(None, records)]
    rows = [f"| `{_cell(names)}` | {_cell(_sentence(text))} |\n" for names, text in records]
    return f"\n```text\n{usage}\n```\n" + ("\n| | |\n|---|---|\n" + "".join(rows) if rows else "")


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {
    **option_pages.PAGES,
    "api.md": api_page,
    **{f"api/{section.name}.md": partial(group_page, section) for section in api_sections()},
    "cli.md": cli_page,
    "errors.md": error_pages.errors_page,
    "images/rooms.svg": room_picture,
    **{f"images/{name}": draw for name, draw in concept_pictures.PICTURES.items()},
}


def main(folder: Path) -> None:
    """Write the pages into `folder`."""
    for name, page in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
