"""Docstrings and comments: names in backticks exist, and no docstring begins with words that lean on another text."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

import lakebed

SOURCE = Path(lakebed.__file__).parent
# Names of other programs: their classes, functions, settings and tables, and names that examples make up.
ELSEWHERE = frozenset(
    [
        # Java, Hadoop, Spark and Hudi
        *("Double", "Float", "nameUUIDFromBytes", "SaveMode", "awaitTermination", "HoodieWriteCommitCallbackMessage"),
        *("BigDecimal", "BOOTSTRAP_METADATA", "HADOOP_USER_NAME", "changelog", "div", "nvl2", "variant_normalize"),
        *("filterPushdown", "useV1SourceList", "timestampType", "logRetentionDuration"),
        # packages for Python
        *("FileMetaData", "RowGroupMetaData", "TableGroupBy", "acero", "scan_pyarrow_dataset", "cached_property"),
        *("DebeziumJsonEngine", "_dlt_loads", "_dlt_pipeline_state", "_dlt_version"),
        "DESTINATION__LAKEBED__URI",
        # formats of dates and zones
        *("yyyyMMdd", "ZZ", "ZZZ"),
        # columns and tables of examples
        *("prices", "member0"),
    ]
)
_TICKS = re.compile(r"`([^`\n]+)`")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WORD = re.compile(r"[A-Za-z_]\w*")
# A name, perhaps dotted, perhaps called. What else has backticks is text: SQL, paths, bytes, commands.
_NAME = re.compile(r"[A-Za-z_][\w.]*(\((?:[^()]|\([^()]*\))*\))?")
_FILE = re.compile(r"[\w/]+\.py")
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)


def names_and_prose() -> tuple[set[str], list[tuple[str, str]]]:
    """All words of the code, and the docstrings and comments with backticks of each file."""
    names = {*dir(builtins), *keyword.kwlist, *_WORD.findall((SOURCE / "config/options.tsv").read_text("utf-8"))}
    prose: list[tuple[str, str]] = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE)
        names.update(name.with_suffix("").parts)
        text = path.read_text("utf-8")
        prose += [(str(name), found) for pattern in (_DOCSTRING, _COMMENT) for found in pattern.findall(text)]
        names.update(_WORD.findall(_COMMENT.sub("", _DOCSTRING.sub("", text))))
    return names, [(name, text) for name, text in prose if "`" in text]


def unknown_names(names: set[str], tick: str) -> Iterator[str]:
    """What a text in backticks names that is neither in the code nor elsewhere."""
    if _FILE.fullmatch(tick):
        if not any(SOURCE.rglob(tick.removeprefix("lakebed/"))) and not (SOURCE.parents[1] / tick).is_file():
            yield tick
    elif _NAME.fullmatch(tick):
        for word in _WORD.findall(_QUOTED.sub("", tick)):
            is_part = (word.endswith("_") and any(name.startswith(word) for name in names)) or (
                word.startswith("_") and any(name.endswith(word) for name in names)
            )
            if not (word in names or word in ELSEWHERE or is_part):
                yield word


def test_names_in_backticks_exist() -> None:
    names, prose = names_and_prose()
    missing = [
        f"{where}: `{tick}`"
        for where, text in prose
        for tick in _TICKS.findall(text)
        if any(unknown_names(names, tick))
    ]
    assert missing == [], "the prose names what is gone; name what is there, or add a name of others to ELSEWHERE"
    assert ELSEWHERE & names == set(), "these names are in the code; take them out of ELSEWHERE"


# Docstrings that begin so lean on a text that a reader does not have. The number only goes down.
MAX_LEANING = 0
_LEANING = re.compile(r"(The same|Those|Of|As|Like)\b")


def test_no_docstring_begins_with_the_same_those_of_as_or_like() -> None:
    leaning = [
        f"{path.relative_to(SOURCE)}: {text.split(chr(10))[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for text in _DOCSTRING.findall(path.read_text("utf-8"))
        if _LEANING.match(text.lstrip())
    ]
    assert len(leaning) <= MAX_LEANING, "say what is returned, with its subject: " + "; ".join(leaning)


def test_a_missing_name_and_a_missing_file_are_found() -> None:
    names = {"scan", "where", "offset_start"}
    assert list(unknown_names(names, "scan(where='gone')")) == []
    assert list(unknown_names(names, "scan.vanished")) == ["vanished"]
    assert list(unknown_names(names, "read/no_such_file.py")) == ["read/no_such_file.py"]
    assert list(unknown_names(names, "read/scan.py")) == []
    assert list(unknown_names(names, "offset_")) == []
    assert list(unknown_names(names, "SELECT vanished FROM trips")) == []
