"""Record keys on the command line: as texts, or field by field with `--key NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import lakebed
from lakebed.wording import key_text

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="Record keys, e.g. 42, 2024-01-31, or id:42,day:7.", show_default=False),
]
KeyFields = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="NAME=VALUE",
        help="A field of a record key, e.g. --key id=42 --key day=7; a name that comes again begins another key. Or a"
        " record key, as KEY.",
    ),
]


def key_texts(table: lakebed.Table, keys: Sequence[str] | None, fields: Sequence[str] | None) -> list[str]:
    """The texts of record keys, as users write them, from both ways in which a command takes them. Raises
    `BadParameter` where there is none, and for a key that lacks one of its fields."""
    texts = [*(keys or ()), *(_of_fields(table, fields) if fields else ())]
    if not texts:
        raise typer.BadParameter("give a record key, or its fields: --key NAME=VALUE", param_hint="KEY")
    return texts


def _of_fields(table: lakebed.Table, pairs: Sequence[str]) -> list[str]:
    names = [n for n in table.properties.get("hoodie.table.recordkey.fields", "").split(",") if n]
    texts: list[str] = []
    fields: dict[str, str] = {}
    for text in pairs:
        name, mark, value = text.partition("=")
        if not mark or name not in names:
            if mark and len(names) > 1 and not text.startswith(f"{names[0]}:"):
                raise typer.BadParameter(
                    f"{name!r} is no field of the key, which is {', '.join(names)}", param_hint="--key"
                )
            texts.append(text)
            continue
        if name in fields:
            texts.append(_joined(names, fields))
            fields = {}
        fields[name] = value
    return [*texts, _joined(names, fields)] if fields else texts


def _joined(names: Sequence[str], fields: dict[str, str]) -> str:
    lacking = [name for name in names if name not in fields]
    if lacking:
        raise typer.BadParameter(
            f"the key is {', '.join(names)}: give {' '.join(f'--key {name}=VALUE' for name in lacking)}, too",
            param_hint="--key",
        )
    return key_text({name: fields[name] for name in names})
