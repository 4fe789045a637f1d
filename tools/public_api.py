"""The public surface of lakebed as a text: `python tools/public_api.py FILE` writes it.

A line for each function, class, method, property and field that docs/api.md shows, and for each command with its
options: names, parameters, types and defaults. `changes` compares two such texts.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import reference_pages
import typer

import lakebed
from lakebed.cli.main import app

# Public besides `import lakebed`: what an index, a handler, a test or a metrics endpoint of others is made with.
_MODULES: Mapping[str, tuple[str, ...]] = {
    "lakebed.index.base": ("Index",),
    "lakebed.telemetry": ("serve_prometheus",),
    "lakebed.dlt_destination": ("Lakebed",),
    "lakebed.debezium_handler": ("TableHandler",),
    "lakebed.testing": ("FaultyStorage",),
}
_CONSTRUCTED = {*reference_pages.GIVEN, *(name for names in _MODULES.values() for name in names)}


def surface() -> list[str]:
    """The lines of the text, sorted: `lakebed.open(uri: str, ...) -> Table`, `Table.uri: str`, `$ lakebed get ...`."""
    return sorted({*_python(), *_commands()})


def changes(before: list[str], after: list[str]) -> list[str]:
    """The names whose line of `before` is not in `after`: removed, or with another signature.

    >>> changes(["lakebed.open(uri)", "Table.uri: str"], ["lakebed.open(uri, spark=None)", "Table.uri: str"])
    ['lakebed.open']
    """
    return sorted({name_of(line) for line in {*before} - {*after}})


def name_of(line: str) -> str:
    """What a line is about.

    >>> name_of("Table.uri: str"), name_of("$ lakebed get URI [--columns=]")
    ('Table.uri', 'lakebed get')
    """
    if line.startswith("$ "):
        return " ".join(word for word in line[2:].split() if word.replace("-", "").isalpha() and word.islower())
    return line.partition("(")[0].partition(":")[0].partition(" ")[0]


def _python() -> Iterator[str]:
    for name in lakebed.__all__:
        thing = getattr(lakebed, name)
        if inspect.isclass(thing):
            yield from _class(thing, f"lakebed.{name}")
        elif inspect.isfunction(thing):
            yield f"lakebed.{name}{_signature(thing)}"
        elif inspect.ismodule(thing) and name != "errors":
            yield from (f"lakebed.{name}.{one}{_kind(getattr(thing, one))}" for one in thing.__all__)
        else:
            yield f"lakebed.{name}{_kind(thing)}"
    for section in reference_pages.api_sections():
        for path, members in section.objects:
            module, _, name = path.rpartition(".")
            thing = getattr(importlib.import_module(module), name)
            if inspect.isclass(thing) and name not in lakebed.__all__:
                yield from _class(thing, name, members)
    for module, names in _MODULES.items():
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            full = f"{module}.{name}"
            yield from _class(thing, full) if inspect.isclass(thing) else [f"{full}{_signature(thing)}"]


def _kind(thing: Any) -> str:
    """The signature of a function, or the type of a value."""
    return _signature(thing) if callable(thing) else f": {type(thing).__name__}"


def _class(cls: type, name: str, members: Any = None) -> Iterator[str]:
    """The class, its constructor where callers use it, and its public members."""
    yield f"{name} is a class({', '.join(base.__name__ for base in cls.__bases__ if base is not object)})"
    if name.rpartition(".")[2] in _CONSTRUCTED:
        yield f"{name}.__init__{_signature(cls)}"
    if dataclasses.is_dataclass(cls):
        yield from (f"{name}.{one.name}: {one.type}" for one in dataclasses.fields(cls) if one.name[0] != "_")
    for member in dir(cls):
        value = inspect.getattr_static(cls, member)
        is_own = any(member in vars(base) for base in cls.__mro__ if base.__module__.startswith("lakebed"))
        if member.startswith("_") or not is_own or (members is not None and member not in members):
            continue
        if isinstance(value, property):
            yield f"{name}.{member}: {inspect.signature(value.fget).return_annotation if value.fget else ''}"
        elif inspect.isfunction(value):
            yield f"{name}.{member}{_signature(value)}"


def _signature(function: Any) -> str:
    if not callable(function):
        return ""
    signature = inspect.signature(function)
    parts: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in parts and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts.append(reference_pages.parameter(one))
    back = signature.return_annotation
    return f"({', '.join(parts)})" + ("" if back is signature.empty else f" -> {back}")


def _commands() -> Iterator[str]:
    program: Any = typer.main.get_command(app)
    for name, command in reference_pages.commands(program, "lakebed"):
        parts = [_parameter(one) for one in command.params if one.name != "help"]
        yield " ".join([f"$ {name}", *parts])


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"<{parameter.name}>" if parameter.required else f"[<{parameter.name}>]"
    default = parameter.default
    shown = "" if default is None or callable(default) or "Sentinel" in type(default).__name__ else str(default)
    return f"[{'/'.join([*parameter.opts, *parameter.secondary_opts])}={shown}]"


def main(file: Path) -> None:
    """Write the surface into `file`."""
    file.write_text("\n".join(surface()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
