"""What holds across the rooms of `src/lakebed` and no import contract can say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lakebed

SOURCE = Path(lakebed.__file__).parent
# The faces, where a user's session or DataFrame comes in.
FACES = ("cli", "spark_source", "opening.py", *(path.name for path in SOURCE.glob("table*.py")))
ENGINES = frozenset({"LocalEngine", "SparkEngine"})
MOST_FILES = 30


def modules(*without: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if name.parts[0] not in without:
            yield str(name), ast.parse(path.read_text(encoding="utf-8"))


def names_in(node: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def class_tests(tree: ast.Module) -> Iterator[ast.AST]:
    """What decides by a class: `isinstance`, comparisons, and patterns of `match`."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and names_in(node.func) & {"isinstance", "issubclass"}
        if is_call or isinstance(node, ast.Compare | ast.MatchClass):
            yield node


def is_engine_name(node: ast.AST) -> bool:
    """`engine.name`, `context.engine.name`, `self._engine.name`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    owner = node.value
    last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return last.lstrip("_") == "engine"


def places(tests: Iterator[tuple[str, ast.AST]]) -> list[str]:
    return [
        f"{name}:{node.lineno}: {ast.unparse(node)}" for name, node in tests if isinstance(node, ast.expr | ast.pattern)
    ]


def index_classes() -> set[str]:
    """Classes of `index/` that have an index's name (`name` is its type in `index="..."`)."""
    found = {"Index"}
    for path in (SOURCE / "index").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Index"):
                found.add(node.name)
    return found


def test_nothing_outside_the_engines_and_the_faces_decides_by_the_engine() -> None:
    found = (
        (name, node)
        for name, tree in modules("engine", *FACES)
        for node in class_tests(tree)
        if names_in(node) & ENGINES or any(map(is_engine_name, ast.walk(node)))
    )
    assert places(found) == []


def test_the_index_classes_are_found() -> None:
    assert index_classes() >= {"Index", "BucketIndex", "SimpleIndex", "GlobalSimpleIndex", "RecordIndex"}


def test_nothing_outside_the_indexes_decides_by_an_index_class() -> None:
    classes = index_classes()
    found = ((name, node) for name, tree in modules("index") for node in class_tests(tree) if names_in(node) & classes)
    assert places(found) == []


def test_no_folder_has_more_files_than_one_can_keep_in_view() -> None:
    folders = [SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir())]
    sizes = {str(folder.relative_to(SOURCE)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > MOST_FILES} == {}
