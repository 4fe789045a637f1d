"""Names are nouns and verbs that a stranger knows: the odd words of an earlier private language do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lakebed
from support.source_trees import parsed_files

ODD = frozenset(
    [
        "alike",
        "anew",
        "behind",
        "beside",
        "chosen",
        "given",
        "gone",
        "held",
        "kept",
        "known",
        "lies",
        "made",
        "mine",
        "nobody",
        "ours",
        "own",
        "place",
        "places",
        "rivals",
        "said",
        "say",
        "says",
        "settle",
        "settles",
        "shown",
        "somebody",
        "stands",
        "stray",
        "orphan_instants",
        "sweep",
        "tell",
        "tells",
        "theirs",
        "told",
        "twin",
        "wanted",
        "whole",
    ]
)
ALLOWED = {
    "CheckpointBehind": "a checkpoint that is older than what is retained",
    "place": "the step of a write that gives rows their file groups",
    "place_in_one": "the same",
    "tell": "a method of Python's files",
    "connection_made": "a method of protocols of asyncio",
    "whole_number": "a number without a fraction",
    "lock_is_held": "the state of a lock",
    "is_made_by_lakebed": "the maker of a table",
    "made": "what a plan was made of",
    "known": "what is known of a thing: its rings, its targets, a share of keys",
    "is_known": "whether a thing is known",
    "made_by_lakebed": "the maker of a file",
    "kept": "a column of a plan as JSON",
}
# Variables are named after what they hold, not after what happened to it.
ODD_VARIABLES = frozenset(
    [
        "alike",
        "anew",
        "asked",
        "begun",
        "behind",
        "beside",
        "both",
        "chosen",
        "each",
        "found",
        "given",
        "gone",
        "held",
        "here",
        "kept",
        "known",
        "late",
        "made",
        "meant",
        "mine",
        "most",
        "one",
        "ours",
        "own",
        "place",
        "places",
        "rest",
        "said",
        "seen",
        "shown",
        "some",
        "stands",
        "stray",
        "taken",
        "theirs",
        "there",
        "told",
        "wanted",
        "what",
        "who",
        "whole",
    ]
)
# A parameter is read by callers, too: `least`, which is a variable next to `greatest`, has a noun in it.
ODD_PARAMETERS = ODD_VARIABLES | {"least"}
ALLOWED_VARIABLES = {
    ("filters/functions.py", "places"): "of a decimal",
    ("handles/cluster.py", "one"): "the number",
}
# A bound is called MAX_ or MIN_, by its first word; these words are other names of the two.
BOUNDING = frozenset(
    [
        "deepest",
        "farthest",
        "few",
        "fewest",
        "greatest",
        "highest",
        "largest",
        "least",
        "limit",
        "longest",
        "lowest",
        "many",
        "most",
        "shortest",
        "smallest",
        "widest",
    ]
)
ALLOWED_BOUNDS = {"_TOO_MANY": "an answer of HTTP servers"}
# Words that make a test's name a riddle.
RIDDLES = frozenset(
    [
        "alike",
        "anew",
        "behind",
        "lies",
        "mended",
        "mine",
        "nobody",
        "ours",
        "somebody",
        "stands",
        "sweep",
        "theirs",
        "told",
    ]
)
# A helper of tests has the noun of what it gives, or the verb of what it does.
ODD_HELPERS = frozenset(["alike", "begun", "kept", "made", "mine", "said", "shown", "told"])
# "Merge" means that one of two rows of a key wins, by the table's merge mode. Only these modules define names in which
# it is another thing: the statement MERGE and its verb, or that several files, buckets or logs become one.
MERGES_ELSEWHERE = {
    "statement": [
        *("cli/sql.py", "dlt_destination/destination.py", "errors.py", "opened_table.py", "operations/merge.py"),
        *("operations/merge_join.py", "operations/merge_on_spark.py", "operations/merge_statement.py"),
        *("statements/changes.py", "statements/inserts.py", "table.py", "table_merge.py"),
    ],
    "files": [
        *("cli/maintenance.py", "concurrency/conflicts.py", "index/consistent/resize.py", "index/consistent/ring.py"),
        *("services/change_index_plan.py", "services/clustering.py", "services/service.py", "table_maintenance.py"),
        *("timeline/archive_writer.py", "timeline/plain_keys.py"),
    ],
}
# Words that show, next to "merge", which of its meanings a name has.
MERGE_BESIDE = {
    "rows": ["duplicates", "keys", "log", "mode", "modes", "order", "pairs", "rows", "rules", "strategy"],
    "statement": ["ambiguous", "bound", "by", "clause", "explain", "join", "plan", "spark", "statement"],
    "files": ["below", "buckets", "bytes", "files", "groups", "levels", "logs", "slice", "slices", "small"],
}
# Words next to "merge" with which it would be a fourth thing, that other words say: compacted, reconciled, joined.
MERGE_OF_NOTHING = frozenset(
    ["blocks", "config", "dicts", "mapping", "options", "pieces", "schemas", "settings", "texts"]
)
MERGE_ALLOWED = {
    "MergedSlice": "the rows of a file slice",
    "SliceMerge": "the records of a file slice",
    "_MERGE_SETTINGS": "of the merge mode",
    "_by_merger": "a merger is of rows",
    "_merge_levels": "of the archived timeline",
    "is_merge_on_read": "a table type",
    "merge_settings": "of the merge mode",
    "supported_merge_strategies": "an attribute of dlt's",
}
MIN_WORDS = 3
SOURCE = Path(lakebed.__file__).parent
TESTS = Path(__file__).parents[1]


@cache
def sources() -> list[tuple[str, ast.Module]]:
    return parsed_files(SOURCE)


@pytest.fixture(scope="module", autouse=True)
def _no_trees_are_left() -> Iterator[None]:
    yield
    sources.cache_clear()


@cache
def names_of_sources() -> list[tuple[str, str]]:
    """The files and the names that they define."""
    return [(path, name) for path, tree in sources() for name in names_of(tree.body, members=False)]


def variables_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names that a function gives to values."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def parameters_of(tree: ast.Module) -> Iterator[str]:
    """The names of all parameters of functions, methods and lambdas."""
    return (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))


def constants_of(tree: ast.Module) -> Iterator[str]:
    """The names of a module that are in capitals."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
                    yield node.id


def settings_of(tree: ast.Module) -> Iterator[str]:
    """The names of all fields of a module's classes."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            yield from names_of(statement.body, members=True)


def is_odd_bound(name: str) -> bool:
    """Whether a name is that of a bound, without MAX or MIN as its first word.

    >>> [name for name in ("MAX_ROWS", "_MIN_ROWS", "ROWS", "_MOST_ROWS", "rows_max") if is_odd_bound(name)]
    ['_MOST_ROWS', 'rows_max']
    """
    first, *others = name.lower().lstrip("_").split("_")
    return bool({first, *others} & BOUNDING or ({"max", "min"} & {*others} and first not in ("max", "min")))


def words(name: str) -> set[str]:
    """The words of a name in snake case or camel case.

    >>> sorted(words("told_HBaseTable"))
    ['base', 'h', 'table', 'told']
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_of(body: list[ast.stmt], *, members: bool) -> Iterator[str]:
    """Names that a module defines, and the public methods and fields of its classes."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [statement.name]
        elif isinstance(statement, ast.ClassDef):
            found = [statement.name]
            yield from names_of(statement.body, members=True)
        elif isinstance(statement, ast.Assign):
            found = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found = [statement.target.id]
        else:
            continue
        yield from (name for name in found if not members or not name.startswith("_"))


def test_public_and_module_level_names_have_no_odd_words() -> None:
    odd = {f"{path}: {name}" for path, name in names_of_sources() if words(name) & ODD and name not in ALLOWED}
    assert odd == set()


def test_variables_have_no_odd_names() -> None:
    odd = {
        (path, name)
        for path, tree in sources()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in variables_of(function)
        if name in ODD_VARIABLES
    }
    assert odd == set(ALLOWED_VARIABLES)


def test_parameters_have_no_odd_names() -> None:
    odd = {f"{path}: {name}" for path, tree in sources() for name in parameters_of(tree) if name in ODD_PARAMETERS}
    assert odd == set()


def test_bounds_begin_with_max_or_min() -> None:
    constants = [(path, name) for path, tree in sources() for name in constants_of(tree)]
    assert len(constants) > 1000
    settings = [(path, name) for path, tree in sources() if path == "config/settings.py" for name in settings_of(tree)]
    assert len(settings) > 100
    odd = {
        f"{path}: {name}" for path, name in constants + settings if is_odd_bound(name) and name not in ALLOWED_BOUNDS
    }
    assert odd == set()


def names_with_merge(tree: ast.Module) -> Iterator[str]:
    """The names with "merge" in them that a module defines: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        else:
            continue
        if any(word.startswith(("merg", "unmerg")) for word in words(name)):
            yield name


def meanings_of_merge(name: str) -> set[str]:
    """The meanings of "merge" that the other words of a name show.

    >>> meanings_of_merge("merge_mode"), meanings_of_merge("merge_small_files"), meanings_of_merge("merged")
    ({'rows'}, {'files'}, set())
    """
    return {meaning for meaning, beside in MERGE_BESIDE.items() if words(name) & {*beside}}


def test_merge_has_one_meaning_in_a_module() -> None:
    elsewhere = {path: meaning for meaning, paths in MERGES_ELSEWHERE.items() for path in paths}
    names = {path: {*names_with_merge(tree)} - {*MERGE_ALLOWED} for path, tree in sources()}
    several = {
        f"{path}: {name}": sorted(meanings_of_merge(name))
        for path, defined in names.items()
        for name in defined
        if meanings_of_merge(name) and elsewhere.get(path, "rows") not in meanings_of_merge(name)
    }
    assert several == {}, "name it by the module's meaning, or by another word: compact, reconcile, join"
    fourth = {
        f"{path}: {name}"
        for path, defined in names.items()
        for name in defined
        if words(name) & MERGE_OF_NOTHING and not meanings_of_merge(name)
    }
    assert fourth == set()
    assert {path for path in elsewhere if not names[path] and path != "dlt_destination/destination.py"} == set()


def test_names_of_tests_are_facts_in_plain_words() -> None:
    names = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        if len(name.split("_")) <= MIN_WORDS or words(name) & RIDDLES
    }
    assert names == set()


def test_helpers_of_tests_are_named_after_what_they_give() -> None:
    helpers = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in re.findall(r"^def _?(\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name in ODD_HELPERS
    }
    assert helpers == set()


def test_every_folder_of_unit_tests_is_a_room() -> None:
    folders = {path.parent.relative_to(TESTS / "unit") for path in (TESTS / "unit").rglob("test_*.py")}
    assert {str(folder) for folder in folders if not (SOURCE / folder).is_dir()} == set()


def test_every_allowed_name_is_there() -> None:
    assert set(ALLOWED) <= {name for _, name in names_of_sources()}
