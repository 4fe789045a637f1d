"""Hints as commands: errors, reports and warnings name calls of Python. On the command line the same is a command."""

from __future__ import annotations

import ast
import logging
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import typer

# Commands with other words than the call, and what precedes its first arguments: options, or "" for an argument.
_COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lakebed.create": ("create", ("", "--schema-from")),
    "create": ("create", ("", "--schema-from")),
    "lakebed.maintenance.repair": ("maintenance repair", ("", "--part")),
    "t.maintenance.cluster": ("maintenance cluster", ("--sort-columns",)),
    "t.maintenance.repair": ("maintenance repair", ("--part",)),
    "t.maintenance.rescale": ("maintenance rescale", ("--buckets",)),
    "t.consumers.start": ("consume", ("",)),
    "t.erase": ("erase", ("--key",)),
    "t.indexes.advise": ("indexes advise", ("--batch",)),
    "t.indexes.ranges": ("indexes list", ()),
    "t.merge": ("merge", ("",)),
}
# Arguments of calls whose options have other names; a value of them may have its own option.
_OPTIONS = {
    "partitions": "--partition",
    "properties": "--property",
    "options": "--option",
    "tables": "--table",
    "args": "--arg",
    "storage_options": "--storage-option",
    "source_options": "--source-option",
    "update_partition_path=False": "--no-update-partition-path",
    "partitioned=False": "--global",
    "wait=False": "--no-wait",
    "validate=False": "--no-validate",
}
# What callers have in hand, as it is named on the command line.
_VALUES = {
    "rows": "FILE",
    "files": "FILE",
    "data": "FILE",
    "df": "FILE",
    "keys": "KEY...",
    "path": "PATH",
    "paths": "PATH...",
}
_CALL = re.compile(r"(?<![\w.`])(?:(?:t|lakebed)(?:\.[a-z]\w*){1,2}|create|upsert|insert_overwrite)\(")
_NAME = re.compile(r"(?<![\w.`])t\.([a-z]\w*(?:\.[a-z]\w*)?)(?!\w|\(|\s*=|\.\w)")
_TWICE = re.compile(r"(`[^`]+`)(?:,? or|,) \1")
# A name of two words or more, which can only mean an argument where an option is called so.
_LONG_NAME = re.compile(r"(?<![\w.'\"/=-])[a-z]+(?:_[a-z]+)+(?![\w.='\"(])")
_ARGUMENT = re.compile(
    r"(?<![\w.{,'\[/-])(?<!\w\()([a-z]\w*)=(\{[^}]*\}|\[[^]]*\]|'[^']*'|\"[^\"]*\"|True|False|\.\.\.|-?\w*)"
)


# What is no call that a command does, or only in Python.
_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"lakebed\.DataFiles\(path, rename='snake'\) (reads [^;]*); .* for the same dict\.",
        r"`--read rename=snake` \1.",
    ),
    (r"\bDataFiles\(path, index_column='row'\)", "`--read index_column=row`"),
    (r"\bDataFiles\(path, columns=\{'(\w+)': '(\w+)'\}\)", r"`--read columns.\1=\2`"),
    (r"\bcolumns=\{'(\w+)': '(\w+)'\}", r"--read columns.\1=\2"),
    (r"\bdate_format=(?!%)", "--read date_format="),
    (r"\blakebed\.open\(uri, options=\{'([\w.]+)': (\w+)\}\)", r"a Python program that opens the table with \1=\2"),
    (r"\blakebed\.KeyText\(\[\.\.\.\]\)", "their text (`lakebed get URI id:42,day:7`)"),
    (r"\b(?:t\.)?insert_overwrite\(rows, ['\"]table['\"]\)", "`lakebed insert-overwrite URI FILE --scope table`"),
    (r"\blakebed\.open\('([^']*)'\)\.scan\(\)\.to_arrow\(\)", r"`lakebed scan \1`"),
    (r"\b[Oo]pen the table with spark=\.\.\., (?:or )?", ""),
    (r"\bdelimiter=('[^']*'), or --delimiter \1 on the command line", r"--delimiter \1"),
    (r" makes one, and so does t\.consumers\.start\(name\)", " makes one"),
    (r", or give (?:spark=|a pyarrow\.compute expression)", ""),
    (r"\bimages='rows'", "--output json"),
    (
        r"\bread t\.rejects, then lakebed\.drop\(t\.rejects\.uri\)",
        "read `lakebed checks rejects URI`, then `lakebed drop URI/.hoodie/lakebed_rejects`",
    ),
    (r"^sql\(\) does not run (.+) without a session, in the", r"\1 is no statement that runs without Spark, in the"),
    (r"; give spark= for those of Spark|\b[Ww]ithout spark= ", ""),
    (r" t\.stage\(\) shows the table with a write before it is committed\.", ""),
    (r"; t\.stage\(\) shows the table with them before a commit", ""),
    (r"\b[Gg]ive spark=", "run it in a Python program with Spark"),
    (r"\blakebed\.create\b(?!\()", "`lakebed create`"),
    (r"\blakebed\.open\b(?!\()", "`lakebed describe`"),
)
# How a method refuses a value (`lakebed.config.arguments.refused`).
_TAKES = re.compile(r"^\w+\(\) takes (.+) as (\w+), not ")
# The command of a group that shows what the group is of.
_LISTS = {
    **{group: f"{group} list" for group in ("catalogs", "checks", "columns", "consumers", "indexes", "savepoints")},
    **{group: f"{group} show" for group in ("files", "timeline")},
}
_apps: list[typer.Typer] = []


def name_program(app: typer.Typer) -> None:
    """Register the program once: `as_commands` looks its commands and their options up."""
    _apps[:] = [app]


@cache
def _program() -> Any:
    (app,) = _apps
    return typer.main.get_command(app)


def as_commands(text: str) -> str:
    """The text with `lakebed ...` in place of each call for which there is a command.

    >>> import lakebed.cli.main
    >>> as_commands("First t.restore(), or t.maintenance.rescale(buckets=8, dry_run=True). t.nothing() is no command.")
    'First `lakebed restore URI`, or `lakebed maintenance rescale URI --buckets 8 --dry-run`. t.nothing() is no
    command.'
    """
    for pattern, command in _PHRASES:
        text = re.sub(pattern, command, text)
    parts: list[str] = []
    for part, call in _calls(text):
        parts += [part, _command(call) or call] if call else [part]
    pieces = "".join(parts).split("`")
    pieces[::2] = [_NAME.sub(_named, piece) for piece in pieces[::2]]
    return _TWICE.sub(r"\1", "`".join(pieces))


def message_as_commands(message: str) -> str:
    """The message of an error as `as_commands` converts it, with options in place of arguments that it names.

    >>> import lakebed.cli.main
    >>> message_as_commands("merge='event_time' needs an ordering column")
    '--merge event_time needs an ordering column'
    >>> message_as_commands("scan() takes a column or several as columns, not 3")
    '--columns takes a column or several, not 3'
    """
    pieces = _TAKES.sub(_taking, as_commands(message)).split("`")
    pieces[::2] = [_ARGUMENT.sub(_option, piece) for piece in pieces[::2]]
    return "`".join(pieces)


def hint_as_commands(hint: str) -> str:
    """The hint of an error as `message_as_commands` converts it, with options in place of names of arguments, too.

    >>> import lakebed.cli.main
    >>> hint_as_commands("Give buckets=, or make it with type='mor'; t.maintenance.upgrade(to=9).")
    'Give --buckets, or make it with --type mor; `lakebed maintenance upgrade URI --to 9`.'
    """
    pieces = message_as_commands(hint).split("`")
    pieces[::2] = [_LONG_NAME.sub(_long_option, piece) for piece in pieces[::2]]
    text = "`".join(pieces)
    return text[:1].upper() + text[1:] if hint[:1].isupper() else text


def _calls(text: str) -> Iterator[tuple[str, str]]:
    """The text in parts, each with the call that follows it (empty after the last)."""
    at = 0
    for start in _CALL.finditer(text):
        if start.start() < at:
            continue
        end = _end_of_call(text, start.end())
        if end:
            yield text[at : start.start()], text[start.start() : end]
            at = end
    yield text[at:], ""


def _end_of_call(text: str, at: int) -> int:
    """The position at which the parentheses opened before `at` are closed; 0 if they are not."""
    depth, quote = 1, ""
    for position in range(at, len(text)):
        letter = text[position]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if not depth:
                return position + 1
    return 0


def _command(call: str) -> str | None:
    """The command line for a call; None if there is no such command."""
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return None
    assert isinstance(tree, ast.Call)
    name = call.partition("(")[0]
    command_text, firsts = _COMMANDS.get(name) or (_words_of(name), ())
    command = _found(command_text)
    if command is None:
        return None
    positional = list(tree.args)
    if not name.startswith("lakebed.") and name != "create":
        positional.insert(0, ast.Name("uri"))
        firsts = ("", *firsts)
    values = _positional(positional, firsts, command)
    option_names = frozenset(_options_of(command))
    options = [_option_of(str(keyword.arg), keyword.value, option_names) for keyword in tree.keywords]
    if values is None or None in values or None in options:
        return None
    flags = [word for word in command_text.split() if word.startswith("--")]
    parts = [command_text.removesuffix(" ".join(["", *flags])), *values[:1], *flags, *values[1:], *options]
    return f"`{' '.join(['lakebed', *map(str, parts)])}`"


def _named(name: re.Match[str]) -> str:
    """The command of a verb or view that the text names without a call; the name unchanged if there is none."""
    command = _words_of(name[0])
    command = _LISTS.get(command, command)
    return f"`lakebed {command} URI`" if _found(command) is not None else name[0]


def _found(words: str) -> Any:
    """The command with these words; None if there is none."""
    command = _program()
    for word in words.split():
        command = command if word.startswith("--") else getattr(command, "commands", {}).get(word)
    return None if hasattr(command, "commands") else command


def _words_of(name: str) -> str:
    """The words of a command with the name of the call."""
    parts = name.replace("_", "-").split(".")
    return " ".join(parts[1:] if parts[0] in ("t", "lakebed") else parts)


def _positional(call_arguments: list[ast.expr], firsts: tuple[str, ...], command: Any) -> list[str | None] | None:
    """The arguments of the command, or options, for the arguments of a call; None if the command takes fewer."""
    arguments = [part for part in command.params if part.param_type_name == "argument"]
    required = [f"--{part.name.replace('_', '-')} FILE" for part in command.params if part.name == "schema_from"]
    values: list[str | None] = []
    for at, value in enumerate(call_arguments):
        first = firsts[at] if at < len(firsts) else ""
        if (
            isinstance(value, ast.Constant)
            and value.value is ...
            and len(call_arguments) - at == 1
            and at < 2
            and not first
        ):
            # stands for all that must be given
            values += [_VALUES.get(part.name, part.name.upper()) for part in arguments[at:]] + required
        elif first or at < len(arguments) or (arguments and arguments[-1].nargs == -1):
            values += [first, _text(value, " " if not first else ",")]
        else:
            return None
    return [value for value in values if value != ""]


def _option_of(name: str, value: ast.expr, option_names: frozenset[str]) -> str | None:
    text = _text(value, ",")
    option = _OPTIONS.get(f"{name}={text}") or _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if option not in option_names or text is None or (text == "False" and f"{name}=False" not in _OPTIONS):
        return None
    if isinstance(value, ast.Dict):
        return " ".join(f"{option} {pair}" for pair in text.split(","))
    return option if text in ("True", "False") else f"{option} {text}"


def _option(argument: re.Match[str]) -> str:
    """The option of a command for an argument that the text names outside of a call."""
    name, text = argument.groups()
    try:
        value = ast.parse(text or "...", mode="eval").body
    except SyntaxError:
        return argument[0]
    option = _option_of(name, value, _all_options())
    if option is None:
        return argument[0]
    if isinstance(value, ast.Dict):
        return f"`{option}`"
    return option if text not in ("", "...") else option.removesuffix(" ...") + (" ..." if text else "")


def _taking(refusal: re.Match[str]) -> str:
    """The refusal of a value, with the name of its option or argument on the command line."""
    takes, name = refusal.groups()
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    return f"{option if option in _all_options() else _VALUES.get(name, name.upper())} takes {takes}, not "


def _long_option(name: re.Match[str]) -> str:
    option = f"--{name[0].replace('_', '-')}"
    return option if option in _all_options() else name[0]


def _options_of(command: Any) -> Iterator[str]:
    for part in command.params:
        if part.param_type_name == "option":
            yield from (*part.opts, *part.secondary_opts)


@cache
def _all_options() -> frozenset[str]:
    """The options of all commands."""
    options: set[str] = set()
    commands = [_program()]
    while commands:
        command = commands.pop()
        options.update(_options_of(command))
        commands += getattr(command, "commands", {}).values()
    return frozenset(options)


def _text(value: ast.expr, separator: str) -> str | None:
    """An argument of a call as it is written on the command line: constants, lists, dicts of options, and names, which
    stand for the caller's values; None for any other argument."""
    if isinstance(value, ast.List):
        texts = [_text(element, separator) for element in value.elts]
        return None if None in texts else separator.join(map(str, texts))
    if isinstance(value, ast.Dict):
        texts = [_text(part, ",") for pair in zip(value.keys, value.values, strict=True) for part in pair if part]
        if None in texts or len(texts) < 2 * len(value.values):
            return None
        tokens = [str(text).lower() if text in ("True", "False") else str(text) for text in texts]
        return separator.join(map("=".join, zip(tokens[::2], tokens[1::2], strict=True)))
    if isinstance(value, ast.Name):
        return _VALUES.get(value.id, value.id.upper())
    if isinstance(value, ast.UnaryOp):  # a number below 0
        return ast.unparse(value)
    if not isinstance(value, ast.Constant):
        return None
    text = "..." if value.value is ... else str(value.value)
    if "'" in text and not any(letter in text for letter in '\\"$`'):
        return f'"{text}"'
    return text if text == "..." else shlex.quote(text)


class Warnings(logging.Handler):
    """A log handler that prints lakebed's warnings on standard error, with calls of Python as commands."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(f"warning: {as_commands(record.getMessage())}", err=True)
