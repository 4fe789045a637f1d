"""Odd CSV and JSON texts, made by a seed, and what a careful reader in plain Python sees in them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

_NULLS = {"", "NA", "N/A", "NULL", "null", "nan", "NaN", "n/a"}
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass
class OddText:
    """A text of a kind ("csv", "tsv" or "json") in its encoding, and its rows as plain Python reads them: texts by
    column of a CSV row, None for a row of another length; a JSON object of each row."""

    kind: str
    data: bytes
    encoding: str
    rows: list[Any]
    messages: list[bytes]


# -- CSV


def _fields(dice: random.Random) -> dict[str, Callable[[], str]]:
    def digit() -> int:
        return dice.randint(0, 9)

    return {
        "int": lambda: str(dice.randint(-99, 99)),
        "plus": lambda: f"+{digit()}",
        "long": lambda: (dice.choice(["", "-", "+"]) + str(dice.randint(10**41, 10**42)))[: dice.randint(15, 41)],
        "unsigned": lambda: str(dice.randint(2**63, 2**64 - 1)),
        "inexact": lambda: str(2**53 + dice.randint(-2, 3)),
        "border": lambda: str(dice.choice([-(2**63), 2**63 - 1, -(2**63) - 1, 2**63])),
        "zeros": lambda: f"00{dice.randint(0, 99)}",
        "hex": lambda: hex(dice.randint(0, 99)),
        "float": lambda: repr(dice.random() * 10 ** dice.randint(-5, 20)),
        "exponent": lambda: f"{dice.randint(1, 9)}e{dice.randint(-3, 30)}",
        "point zero": lambda: f"{digit()}.0",
        "text": lambda: dice.choice(["a", "b c", "é", 'it"s', "x,y", "x\ny", '7" nail', "true", "日本", "0x", "1_000"]),
        "empty": lambda: "",
        "no value": lambda: dice.choice(["NA", "null", "nan", "N/A"]),
        "bool": lambda: dice.choice(["true", "false", "TRUE", "False"]),
        "bit": lambda: dice.choice("01"),
        "date": lambda: f"2024-01-0{dice.randint(1, 9)}",
        "local": lambda: f"2024-01-01{dice.choice('T ')}0{digit()}:00:00",
        "moment": lambda: f"2024-01-01T0{digit()}:00:00{dice.choice(['Z', '+02:00', '-0330'])}",
        "micros": lambda: f"2024-01-01T00:00:00.{dice.randint(0, 999999):06}",
        "time": lambda: f"1{digit()}:00:00",
    }


def _csv_column(dice: random.Random, rows: int) -> list[str]:
    fields = _fields(dice)
    kinds = [dice.choice(list(fields)) for _ in range(2)]
    share = dice.choice([0.0, 0.0, 0.3, 0.5])  # of the second kind
    column = [fields["empty" if dice.random() < share / 2 else kinds[dice.random() < share]]() for _ in range(rows)]
    if rows and dice.random() < 0.25:  # a type that comes late
        at = dice.randrange(rows)
        column[:at] = [""] * at
    return column


def odd_csv(seed: int) -> OddText:
    """Headers in any case, records of other lengths, any line ends, quotes, encodings and types."""
    dice = random.Random(seed)
    names = dice.sample(["id", "v", "Name", "a b", "é", "x.y"], dice.randint(1, 4))
    if len(names) > 1 and dice.random() < 0.05:
        names[-1] = names[0].upper()
    count = dice.choice([0, 1, 2, 3, 8, 30])
    columns = [_csv_column(dice, count) for _ in names]
    records = [list(record) for record in zip(*columns, strict=True)]
    if records and dice.random() < 0.1:
        at = dice.randrange(count)
        records[at] = [*records[at], "x"] if dice.random() < 0.5 else records[at][:-1]
    end, mark = dice.choice(["\n", "\n", "\r\n", "\r"]), dice.choice([",", ",", "\t"])
    out = io.StringIO()
    quoting: Any = dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    csv.writer(out, delimiter=mark, lineterminator=end, quoting=quoting).writerows([names, *records])
    text = out.getvalue()
    text = text.removesuffix(end) if dice.random() < 0.3 else text
    text = end * dice.choice([0, 0, 0, 2]) + text + end * dice.choice([0, 0, 0, 2])
    if dice.random() < 0.03:
        text = end * dice.randint(0, 3)
    read = [record for record in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if record]
    rows = [dict(zip(read[0], r, strict=True)) if len(r) == len(read[0]) else None for r in read[1:]]
    kind = "csv" if mark == "," else "tsv"
    return OddText(kind, *_encoded(dice, text), rows, [])


def _encoded(dice: random.Random, text: str) -> tuple[bytes, str]:
    encoding = dice.choice([*["utf-8"] * 8, "utf-8-sig", "latin-1", "utf-16", "utf-16-le"])
    try:
        return text.encode(encoding), encoding
    except UnicodeEncodeError:
        return text.encode(), "utf-8"


def is_csv_value(text: str, value: Any, kind: pa.DataType) -> bool:
    """Whether a field of this text may be this value of a column."""
    plain = text.strip(" \t")
    if value is None:
        return text == "" if pt.is_string(kind) else plain in _NULLS
    if pt.is_string(kind):
        return value == text
    is_whole = _WHOLE.fullmatch(plain) is not None
    try:
        if pt.is_integer(kind) or pt.is_decimal(kind):
            return is_whole and int(plain) == value
        if pt.is_floating(kind):
            return int(plain) == int(value) if is_whole else float(plain) == value
        if pt.is_boolean(kind):
            return plain.lower() == str(value).lower()
        if pt.is_date(kind):
            return date.fromisoformat(plain) == value
        return time.fromisoformat(plain) == value if pt.is_time(kind) else _is_time(plain, value, kind)
    except ValueError:
        return False


def _is_time(text: str, value: Any, kind: pa.DataType) -> bool:
    moment = datetime.fromisoformat(text)
    read = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
    return pt.is_timestamp(kind) and (moment.tzinfo is None) == (kind.tz is None) and moment == read


def csv_differences(rows: list[dict[str, str]], table: pa.Table) -> Iterator[str]:
    """What differs between rows and the table that was read of them. A column without any value may be left out."""
    if table.num_rows != len(rows) and table.num_columns:
        yield f"{table.num_rows} rows, not {len(rows)}"
        return
    for at, (row, values) in enumerate(zip(rows, table.to_pylist(), strict=False)):
        for name, text in row.items():
            if name not in values:
                if text.strip() not in _NULLS:
                    yield f"row {at}: {name} is lost: {text!r}"
            elif not is_csv_value(text, values[name], table.schema.field(name).type):
                yield f"row {at}, {name}: {text!r} is {values[name]!r} of {table.schema.field(name).type}"


# -- JSON


class Fraction(float):
    """A number with a fraction or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> Fraction:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _values(dice: random.Random) -> dict[str, Callable[[], str]]:
    fields = _fields(dice)
    texts = ["a", "", "é", "null", "1", "true", "a\nb", "[[[{", "2024", "12:00"]
    simple: dict[str, Callable[[], str]] = {
        **{name: fields[name] for name in ("int", "unsigned", "inexact", "float", "exponent", "point zero")},
        "long": lambda: fields["long"]().lstrip("+"),
        "text": lambda: json.dumps(dice.choice(texts)),
        "null": lambda: "null",
        "bool": lambda: dice.choice(["true", "false"]),
        **{name: lambda name=name: f'"{fields[name]()}"' for name in ("date", "local", "moment", "micros")},
    }

    def array() -> str:
        kinds = [dice.choice(list(simple)), dice.choice(["null", "int"])]
        return f"[{','.join(simple[kinds[dice.random() < 0.2]]() for _ in range(dice.randint(0, 3)))}]"

    def struct() -> str:
        names = dice.sample(["x", "y"], dice.randint(0, 2))
        return "{" + ",".join(f'"{name}":{simple[dice.choice(list(simple))]()}' for name in names) + "}"

    return {**simple, "array": array, "struct": struct}


def odd_json(seed: int) -> OddText:
    """Objects in lines, over lines, in an array or one after the other; nulls, nested values and types that change."""
    dice = random.Random(seed)
    values = _values(dice)
    names = dice.sample(["id", "v", "w", "é"], dice.randint(1, 3))
    kinds = {name: [dice.choice(list(values)) for _ in range(2)] for name in names}
    share = {name: dice.choice([0.0, 0.0, 0.3]) for name in names}
    objects: list[str] = []
    for _ in range(dice.choice([1, 2, 3, 8, 30])):
        fields: list[str] = []
        for name in names:
            kind = kinds[name][dice.random() < share[name]] if dice.random() < 0.9 else "null"
            spelled = name.upper() if dice.random() < 0.01 else name
            if dice.random() < 0.9:
                fields.append(f"{json.dumps(spelled, ensure_ascii=False)}:{values[kind]()}")
        objects.append("{" + ",".join(fields) + "}")
    forms = ["\n".join(objects), "\r\n".join(objects) + "\r\n", "\r".join(objects), "".join(objects)]
    text = dice.choice([*forms, "\n".join(objects) + "\n", "[" + ",\n".join(objects) + "]"])
    rows = [json.loads(line, parse_float=Fraction) for line in objects]
    return OddText("json", *_encoded(dice, text), rows, [line.encode() for line in objects])


def is_json_value(expected: Any, value: Any, kind: pa.DataType, *, texts: bool) -> bool:
    """Whether a JSON value may be this value of a column; with `texts` a number or truth value may be its text."""
    if expected is None or value is None:
        return value is None and (expected is None or is_empty(expected))
    if isinstance(expected, list):
        items = expected
        return (
            pt.is_list(kind)
            and len(items) == len(value)
            and all(is_json_value(e, v, kind.value_type, texts=texts) for e, v in zip(items, value, strict=True))
        )
    if isinstance(expected, dict):
        if not pt.is_struct(kind):
            return is_empty(expected)
        types = {field.name: field.type for field in kind}
        return all(
            is_json_value(item, value.get(name), types[name], texts=texts) if name in types else is_empty(item)
            for name, item in expected.items()
        )
    if isinstance(expected, str):
        if pt.is_date(kind):
            return value.isoformat() == expected
        return value == expected if pt.is_string(kind) else pt.is_timestamp(kind) and _is_time(expected, value, kind)
    if pt.is_string(kind):
        written = expected.text if isinstance(expected, Fraction) else json.dumps(expected)
        return texts and value == written
    if isinstance(expected, Fraction):
        return Decimal(expected.text) == value if pt.is_decimal(kind) else float(value) == float(expected)
    return isinstance(value, bool) == isinstance(expected, bool) and int(value) == expected


def is_empty(value: Any) -> bool:
    """Whether a JSON value has no value inside."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return all(map(is_empty, value)) if isinstance(value, list) else value is None


def json_differences(rows: list[dict[str, Any]], table: pa.Table, *, texts: bool) -> Iterator[str]:
    """What differs between rows and the table that was read of them. A column without any value may be left out."""
    if not table.num_columns:
        yield from (f"row {at} is lost" for at, row in enumerate(rows) if not is_empty(row))
        return
    if table.num_rows != len(rows):
        yield f"{table.num_rows} rows, not {len(rows)}"
        return
    for at, (row, values) in enumerate(zip(rows, table.to_pylist(), strict=True)):
        expected = {name.lower(): value for name, value in row.items()}
        spellings: dict[str, list[str]] = {name.lower(): [] for name in (*expected, *values)}
        for name in values:
            spellings[name.lower()].append(name)
        for name, columns in spellings.items():  # a name in two cases may be in two columns
            read = [column for column in columns if values[column] is not None] or columns[:1]
            if not read and not is_empty(expected.get(name)):
                yield f"row {at}: {name} is lost: {expected[name]!r}"
            for column in read:
                kind = table.schema.field(column).type
                if not is_json_value(expected.get(name), values[column], kind, texts=texts):
                    yield f"row {at}, {column}: {expected.get(name)!r} is {values[column]!r} of {kind}"
