"""One word for one thing: a command is called as the method or function that does the same, and so are its options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import reference_pages
import typer

import lakebed
from lakebed.cli.main import app
from lakebed.table import Table

# Commands that only print what a view or attribute of Python shows by itself.
SHOWN = {
    "describe": "a table by itself",
    "inspect": "the pages of the inspector",
    "serve": "a server for programs of others",
    "timeline show": "t.timeline",
    "versions": "t.versions",
    "files show": "t.files",
    "columns list": "t.columns",
    "checks rejects": "t.rejects",
    "catalogs find": "lakebed.open of a name in a catalog",
    "options list": "docs/options.md",
    "options show": "docs/options.md",
    "options check": "what lakebed.write refuses",
}
# Options of the shell itself: which rows and how they are printed, a question, the reading of data files.
OF_THE_SHELL = {"output", "storage_option", "limit", "yes", "warehouse"}
OF_THE_SHELL |= {"delimiter", "encoding", "partitioning", "read"}
# Options of one command that stand for something else than an argument of its method, and for what.
ELSEWHERE = {
    ("search", "_k"): "k",
    ("scan", "as_of"): "scan",
    ("count", "as_of"): "scan",
    ("count", "query"): "scan",
    ("consume", "follow"): "a loop around t.consume",
    ("consume", "interval"): "a loop around t.consume",
    ("create", "schema_from"): "schema_or_data, from data files",
    ("erase", "keys_from"): "keys, from a file",
    ("explain", "where"): "scan",
    ("explain", "columns"): "scan",
    ("explain", "as_of"): "scan",
    ("explain", "files"): "Scan.explain",
    ("configure", "remove"): "settings of which the value is None",
    ("merge", "when"): "clauses of Merge",
    ("merge", "message"): "message of Merge.execute",
    ("merge", "metadata"): "metadata of Merge.execute",
    ("maintenance run", "metrics_port"): "serve_prometheus",
    ("maintenance run", "metrics_address"): "serve_prometheus",
    ("indexes advise", "batch_rows"): "batch, a number",
    ("indexes skew", "shards"): "SkewView.shards",
    ("indexes reshard", "partition"): "file_groups by partition path",
    ("ingest", "job"): "one job of several in a file",
    ("sql", "limit"): "rows that are printed",
}


def commands() -> dict[str, Any]:
    program: Any = typer.main.get_command(app)
    return {name.removeprefix("lakebed "): command for name, command in reference_pages.commands(program, "lakebed")}


def callables(command: str) -> list[Callable[..., Any]]:
    """The methods and functions of the command's words, which begin with the group of a view."""
    *group, verb = command.replace("-", "_").split()
    owners: list[Any] = [Table, lakebed]
    if group == ["warehouse"]:
        owners = [lakebed.Warehouse]
    elif group:
        view = getattr(Table, group[0], None)
        space = reference_pages.names_of(sys.modules[Table.__module__])
        annotation = "" if view is None else inspect.signature(view.fget).return_annotation
        owners = [space.get(annotation), getattr(lakebed, group[0], None)]
    return [getattr(owner, verb) for owner in owners if owner is not None and callable(getattr(owner, verb, None))]


def test_each_command_is_called_as_the_method_or_function_that_does_the_same() -> None:
    without = {name for name in commands() if not callables(name)}
    assert without == set(SHOWN)


def test_an_option_is_called_as_the_argument_or_as_one_of_several() -> None:
    odd: list[str] = []
    for name, command in commands().items():
        arguments = {part for function in callables(name) for part in inspect.signature(function).parameters}
        if "create_options" in arguments:
            arguments |= set(inspect.signature(lakebed.create).parameters)
        for option in (part for part in command.params if part.param_type_name == "option" and part.name != "help"):
            word = option.opts[0].removeprefix("--").replace("-", "_")
            several = {f"{word}s", f"{word.removesuffix('y')}ies"}  # --partition is given once for each of partitions
            is_known = word in arguments or several & arguments or word in OF_THE_SHELL or (name, word) in ELSEWHERE
            if not is_known and name not in SHOWN:
                odd.append(f"{name} --{word}")
    assert odd == []
    assert set(ELSEWHERE) <= {
        (name, part.opts[0].removeprefix("--").replace("-", "_")) for name, c in commands().items() for part in c.params
    }, "an exception that no command has any more"
