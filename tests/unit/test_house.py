"""What holds across the rooms of `src/lakebed` and no import contract can say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lakebed

SOURCE = Path(lakebed.__file__).parent
# The faces, where a user's session or DataFrame comes in.
FACES = ("cli", "spark_source", "api.py", *(path.name for path in SOURCE.glob("table*.py")))
ENGINES = frozenset({"LocalEngine", "SparkEngine"})
MOST_LINES = 700
# The one public object, with a docstring and an example for each of its methods.
LONGER = {"table.py": 760}
# Without the signature and the docstring.
MOST_BODY_LINES = 70


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


def test_no_file_and_no_function_is_longer_than_its_bound() -> None:
    lines = {str(p.relative_to(SOURCE)): len(p.read_text("utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGER.get(name, MOST_LINES)} == {}
    functions = (
        (f"{name}:{node.lineno}", node)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    counts = {
        name: (node.end_lineno or 0) - node.body[ast.get_docstring(node) is not None :][0].lineno + 1
        for name, node in functions
        if len(node.body) > 1
    }
    assert {name: count for name, count in counts.items() if count > MOST_BODY_LINES} == {}
