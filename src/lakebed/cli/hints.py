"""Hints of errors as commands: they name calls of Python, and on the command line the same is a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import typer.main

# A call whose arguments have no parentheses of their own.
_CALL = re.compile(r"\bt\.\w+(?:\.\w+)?\([^()]*\)")
# Groups of commands with another name, and the option that the first argument of a call is.
_GROUPS = {"indexes": "index"}
_FIRST_ARGUMENT = {"repair": "--part", "delete_savepoint": "--delete"}
_COMMANDS = {"delete_savepoint": "savepoint", "consumers.move": "consumers.reset"}
# Options with another name than the argument of the call.
_OPTIONS = {"--fields": "--field", "--partition-buckets": "--rules"}


def _renaming(call: re.Match[str]) -> str:
    """A query that gives columns of a CSV file other names, of the names as a dict that Python prints."""
    names: dict[str, str] = ast.literal_eval(call[1])
    renamed = ", ".join(f'"{old}" as {new}' for old, new in names.items())
    query = f"select * rename ({renamed}) from read_csv('FILE')"
    for letter in '\\"$`':  # which mean something between a shell's quotes
        query = query.replace(letter, f"\\{letter}")
    return f'`lakebed sql "{query}" --output csv > RENAMED.csv`.'


# Calls with arguments that stand for what the caller has, and names without a call.
_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\blakebed\.convert\(source, new_uri, key=\.\.\.\)", "`lakebed convert SOURCE NEW_URI --key ...`"),
    (
        r"\blakebed\.convert\(source, new_uri, key=\.\.\., in_place=True\)",
        "`lakebed convert SOURCE NEW_URI --key ... --in-place`",
    ),
    (r"\blakebed\.load\(uri, rows, key=\.\.\.\)", "`lakebed load URI FILE --key ...`"),
    (r"\blakebed\.drop\(uri\)", "`lakebed table drop URI`"),
    (r"\blakebed\.open\(uri, options=\{'([\w.]+)': (\w+)\}\)", r"a Python program that opens the table with \1=\2"),
    (r"\blakebed\.KeyText\(\[\.\.\.\]\)", "their text (`lakebed get URI id:42,day:7`)"),
    (r"\binsert_overwrite\(rows, 'table'\)", "`lakebed insert-overwrite URI FILE --table`"),
    (r"\bt\.register\(catalog, name\)", "`lakebed catalog sync URI --catalog CATALOG --table NAME`"),
    (r"open the table with spark=\.\.\., (?:or )?", ""),
    (r", or give a pyarrow\.compute expression", ""),
    (
        r"rows\.rename_columns\((\{[^}]*\})\) in Arrow;.* for the same dict\.",
        _renaming,
    ),
    (r"\bcreate\(\.\.\., (\w+)='([\w.]+)'\)", r"`lakebed table create URI --schema-from FILE --\1 \2`"),
    (
        r"(?<![\w.({,-])(type|merge|index|ordering|partitioning|kind)=(['\"])(\w+)\2",
        r"--\1 \3",
    ),
    (r"\blakebed\.convert\('([^']*)', new_uri, key=\.\.\.\)", r"`lakebed convert \1 NEW_URI --key ...`"),
    (r"\blakebed\.load\(new_uri, '([^']*)', key=\.\.\.\)", r"`lakebed load NEW_URI \1 --key ...`"),
    (r"\blakebed\.exists\(uri\)", "`lakebed table describe URI`"),
    (
        r"\blakebed\.create\(\.\.\., allow_existing=True\)",
        "`lakebed table create URI --schema-from FILE --allow-existing`",
    ),
    (r"(?<![\w.])upsert\(\.\.\., partial=True\)", "`lakebed upsert URI FILE --partial`"),
    (r"\bt\.configure\(\{'([\w.]+)': True\}\)", r"`lakebed configure URI \1=true`"),
    (r"\bt\.configure\(\{'([\w.]+)': (?:False|false)\}\)", r"`lakebed configure URI \1=false`"),
    (r"\bt\.configure\(\{'([\w.]+)': \.\.\.\}\)", r"`lakebed configure URI \1=...`"),
    (r"\boptions=\{'([\w.]+)': '?([\w.]+)'?\}", r"`--option \1=\2`"),
    (r"\blakebed\.create\b(?!\()", "`lakebed table create`"),
    (r"\blakebed\.open\b(?!\()", "`lakebed table describe`"),
)


def as_commands(hint: str, app: Any) -> str:
    """The hint with `lakebed ...` in place of each call that a command of the app does, too.

    >>> from lakebed.cli.main import app
    >>> as_commands("Finish it first: t.restore(), or t.rescale(buckets=8). t.upsert(rows) writes.", app)
    'Finish it first: `lakebed restore URI`, or `lakebed rescale URI --buckets 8`. t.upsert(rows) writes.'
    """
    program: Any = typer.main.get_command(app)
    for pattern, command in _PHRASES:
        hint = re.sub(pattern, command, hint)
    return _CALL.sub(lambda call: _command(call[0], program) or call[0], hint)


def _command(call: str, program: Any) -> str | None:
    """The command line of a call; None where no command does the same."""
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return None
    assert isinstance(tree, ast.Call)
    method = call.partition("(")[0].removeprefix("t.")
    words = [_GROUPS.get(name, name).replace("_", "-") for name in _COMMANDS.get(method, method).split(".")]
    command = program
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    if command is None or hasattr(command, "commands"):
        return None
    values = [_text(value) for value in tree.args]
    known = {option for parameter in command.params for option in parameter.opts}
    for given in tree.keywords:
        option = f"--{str(given.arg).replace('_', '-')}"
        option = _OPTIONS.get(option, option)
        text = _text(given.value)
        if option not in known or text is None:
            return None
        values += [option] if text == "True" else [option, text]
    takes = sum(parameter.param_type_name == "argument" for parameter in command.params)
    if method in _FIRST_ARGUMENT and tree.args:
        values.insert(0, _FIRST_ARGUMENT[method])
    elif len(tree.args) >= takes:
        return None
    if any(value is None for value in values):
        return None
    return " ".join(["`lakebed", *words, "URI", *map(str, values)]) + "`"


def _text(value: ast.expr) -> str | None:
    """A constant, or a list of them, as it is written on the command line."""
    if isinstance(value, ast.List):
        texts = [_text(one) for one in value.elts]
        return None if None in texts else ",".join(map(str, texts))
    if not isinstance(value, ast.Constant):
        return None
    return "..." if value.value is ... else str(value.value)
