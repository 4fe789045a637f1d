"""What holds across the rooms of `src/lakebed` and no import contract can say."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lakebed
from lakebed.table_indexes import IndexesView, SkewView
from lakebed.table_views import BucketSkewView, FilesView, TimelineView
from support.source_trees import parsed_files

SOURCE = Path(lakebed.__file__).parent
TESTS = Path(__file__).parents[1]
# A test replaces a private function, named as a text of its own or at the end of a path, or one of a private class.
PRIVATE_PATCH = re.compile(r'\bsetattr\((?:(?:[\w.]+, )?"(?:[\w.]+\.)?_[a-z]\w*"|[\w.]*\b_[A-Z][a-z]\w*, )')
# The faces, where a user's session or DataFrame comes in.
FACES = ("cli", "spark_source", "spark_sink", "api.py", *(path.name for path in SOURCE.glob("table*.py")))
ENGINES = frozenset({"LocalEngine", "SparkEngine"})
MAX_LINES = 700
# The one public object, with a docstring and an example for each of its methods.
LONGER = {"table.py": 1300}
# Without the signature and the docstring.
MAX_BODY_LINES = 70


@cache
def parsed() -> list[tuple[str, ast.Module]]:
    return parsed_files(SOURCE)


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@pytest.fixture(scope="module", autouse=True)
def _no_trees_are_left() -> Iterator[None]:
    yield
    parsed.cache_clear()
    nodes_of.cache_clear()


def modules(*without: str) -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in parsed() if Path(name).parts[0] not in without)


def names_in(node: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def class_tests(tree: ast.Module) -> Iterator[ast.AST]:
    """What decides by a class: `isinstance`, comparisons, and patterns of `match`."""
    for node in nodes_of(tree):
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


def places_of(tests: Iterator[tuple[str, ast.AST]]) -> list[str]:
    return [
        f"{name}:{node.lineno}: {ast.unparse(node)}" for name, node in tests if isinstance(node, ast.expr | ast.pattern)
    ]


def index_classes() -> set[str]:
    """Classes of `index/` that have an index's name (`name` is its type in `index="..."`)."""
    found = {"Index"}
    for name, tree in parsed():
        if Path(name).parent == Path("index"):
            found |= {n.name for n in nodes_of(tree) if isinstance(n, ast.ClassDef) and n.name.endswith("Index")}
    return found


def test_nothing_outside_the_engines_and_the_faces_decides_by_the_engine() -> None:
    found = (
        (name, node)
        for name, tree in modules("engine", *FACES)
        for node in class_tests(tree)
        if names_in(node) & ENGINES or any(map(is_engine_name, ast.walk(node)))
    )
    assert places_of(found) == []


def test_the_index_classes_are_found() -> None:
    assert index_classes() >= {"Index", "BucketIndex", "SimpleIndex", "GlobalSimpleIndex", "RecordIndex"}


def test_nothing_outside_the_indexes_decides_by_an_index_class() -> None:
    classes = index_classes()
    found = ((name, node) for name, tree in modules("index") for node in class_tests(tree) if names_in(node) & classes)
    assert places_of(found) == []


def test_no_function_imports_a_name_of_its_own_argument() -> None:
    """The argument would be lost."""
    found: list[str] = []
    for path, tree in parsed():
        for function in nodes_of(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                names = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
                imports = (node for node in ast.walk(function) if isinstance(node, ast.ImportFrom | ast.Import))
                imported = {one.asname or one.name for node in imports for one in node.names}
                found += [f"{path}:{function.lineno}: {name}" for name in imported & names]
    assert found == []


def test_exports_and_loggers_are_above_the_first_function() -> None:
    """A file that was made of two shows it by these in its middle."""
    late: list[str] = []
    for path, tree in parsed():
        defined = [isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body]
        for node in tree.body[defined.index(True) :] if any(defined) else []:
            names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
            late += [f"{path}:{node.lineno}: {name}" for name in names if name in ("__all__", "_log")]
    assert late == [], "move them to the top of the file"


def test_no_file_and_no_function_is_longer_than_its_bound() -> None:
    lines = {str(p.relative_to(SOURCE)): len(p.read_text("utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > LONGER.get(name, MAX_LINES)} == {}
    functions = (
        (f"{name}:{node.lineno}", node)
        for name, tree in modules()
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    counts = {
        name: (node.end_lineno or 0) - node.body[ast.get_docstring(node) is not None :][0].lineno + 1
        for name, node in functions
        if len(node.body) > 1
    }
    assert {name: count for name, count in counts.items() if count > MAX_BODY_LINES} == {}


# Plug-ins: registered once, by the module that chooses among them.
PLUG_INS = (
    *("cli/", "inspector/", "storage/", "concurrency/dynamodb.py", "concurrency/hive.py"),
    *("catalog/hive.py", "catalog/polaris.py", "catalog/unity.py", "catalog/glue.py"),
    *("index/bucket_groups.py", "index/record.py"),
)
# Modules with one importer, in their own folder, that stay files of their own: each is a concept with a name.
CONCEPTS = {
    "metadata_kinds/vector_fold.py": "where rows of vectors are; layer_fold.py has the fold of an index of any kind",
    "other_names.py": "names of other libraries, which most processes never ask for; errors.py has the error",
    "schema/variant_bytes.py": "the outer shape of variants in bytes; logical_types.py has the types",
    "read/task_frames.py": "reads by Ray and Dask; scan.py plans them",
    "slices/placed_records.py": "log records from commit to commit; changed_rows.py has the rows of one reading",
    "catalog/columns.py": "types of Hive and Spark; metastore.py has entries",
    "statements/databases.py": "statements about names; definitions.py has those about a table",
    "concurrency/process_queue.py": "who waits in this process; lock.py speaks to storage",
    "diagnosis/environment.py": "the installation; table.py and storage.py have the table and where it is",
    "diagnosis/table.py": "findings about a table; doctor.py runs the checks",
    "dbt_plugin/plugin.py": "speaks to dbt-duckdb, which imports it by its name; writes.py knows no dbt",
    "dbt_plugin/writes.py": "one run of a model; models.py has its settings",
    "dlt_destination/chain.py": "how tables are written; destination.py speaks to dlt's loader",
    "engine/spark_repeatable.py": "which plans give the same rows each time",
    "engine/shuffle.py": "rows brought together by group, partly in a file",
    "engine/task_steps.py": "what runs in the tasks of Ray and Dask",
    "engine/ray_cluster.py": "Ray as a cluster of the task engine",
    "engine/dask_cluster.py": "Dask as a cluster of the task engine",
    "expressions/joda_read.py": "texts to times; joda.py, its counterpart, is times to texts",
    "filters/arrow.py": "conditions as Arrow expressions; sql.py parses them",
    "filters/functions.py": "functions by name; values.py has columns, constants and operators",
    "filters/values.py": "the types of Spark's literals",
    "format/orc_file.py": "one format of base files; base_file.py reads those of all",
    "format/hfile/search.py": "binary search in blocks",
    "format/parquet_block.py": "one kind of log block, as avro/ is the other",
    "handles/bucket_groups.py": "file groups of one bucket",
    "handles/reappearing.py": "rows that stored deletes would hide; group_writer.py writes those of one file group",
    "index/bloom/search.py": "files ruled out by ranges and filters",
    "index/bloom/slice_search.py": "log files of one file slice",
    "index/hbase/thrift.py": "one of two wire protocols",
    "ingestion/checkpoints.py": "keys of checkpoints in commit metadata",
    "ingestion/connect_types.py": "what values of Debezium mean; debezium.py has the changes",
    "ingestion/error_table.py": "where bad rows go",
    "ingestion/field_names.py": "names that no table can have",
    "ingestion/registry.py": "the kinds of sources",
    "ingestion/rounds.py": "one job; run.py runs several, once or until they are stopped",
    "ingestion/sources/lines.py": "bad lines of text files",
    "ingestion/streamer.py": "Hudi Streamer's properties; config/streamer.py lists them",
    "ingestion/transform.py": "a query of DuckDB over the rows of a round",
    "inputs/csv_rows.py": "one format of texts, as json_rows.py is the other",
    "inputs/file_formats.py": "how one file is read; files.py finds them",
    "inputs/json_rows.py": "one format of texts, as csv_rows.py is the other",
    "inputs/partition_columns.py": "columns that folders name",
    "metadata_upkeep/repeated_keys.py": "damage of the metadata table",
    "metadata/expected_files.py": "what completed instants wrote",
    "operations/callbacks.py": "messages about commits; pipeline.py has the write",
    "operations/precommit.py": "queries that decide about a commit; pipeline.py has the write",
    "operations/merge_on_spark.py": "the join and the clauses in Spark's SQL; merge_join.py has them in Arrow",
    "read/filtered_rows.py": "what a condition saves of a base file; batches.py runs plans",
    "read/spark_search.py": "exact search by tasks of Spark; search.py has it in this process",
    "schema/type_names.py": "the SQL names of types",
    "statements/changes.py": "statements that change a table; run.py picks the kind of a statement",
    "services/change_index_plan.py": "a plan that prints",
    "services/upgrade_properties.py": "properties of each version",
    "slices/repeated_keys.py": "damage of a table",
    "spark_sink/staging.py": "rows between the tasks of a job and its commit",
    "spark_source/filters.py": "Spark's filters as conditions",
    "spark_source/options.py": "options of Spark's reader",
    "spark_source/stream.py": "a stream of batches; source.py has reads of one moment",
    "statements/narrowing.py": "what a query needs of its tables, without Spark",
    "statements/definitions.py": "statements that define a table; run.py picks the kind of a statement",
    "statements/inserts.py": "PARTITION and REPLACE WHERE as calls of a table; changes.py reads the text",
    "statements/searches.py": "the table functions of exact search; sources.py has the tables of a query",
    "statements/procedures.py": "procedures by their names; run.py picks the kind of a statement",
    "statements/services.py": "statements about indexes, services and history; run.py picks the kind",
    "vector_index/layers.py": "what a build or a commit stores; search.py reads it",
    "statements/spark_query.py": "queries on Spark; duckdb_query.py has those in process",
}


def module_files() -> dict[str, str]:
    """The file of each module, by the module's name."""
    names = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return {".".join(("lakebed", *name.with_suffix("").parts)).removesuffix(".__init__"): str(name) for name in names}


def importers() -> dict[str, set[str]]:
    """The files that import each file."""
    files = module_files()
    importing: dict[str, set[str]] = {name: set() for name in files.values()}
    for name, tree in modules():
        for node in nodes_of(tree):
            if isinstance(node, ast.Import):
                modules_named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules_named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for module in modules_named:
                if module in files and files[module] != name:
                    importing[files[module]].add(name)
    return importing


def test_two_files_that_only_know_each_other_are_one_concept() -> None:
    lines = {name: len((SOURCE / name).read_text("utf-8").splitlines()) for name in module_files().values()}
    alone = {
        name
        for name, by in importers().items()
        if len(by) == 1
        and Path(name).name != "__init__.py"
        and Path(importer := next(iter(by))).parent == Path(name).parent
        and Path(importer).name != "__init__.py"
        and lines[name] + lines[importer] <= MAX_LINES
        and not name.startswith(PLUG_INS)
    }
    assert alone <= set(CONCEPTS), "join it with its importer, or name the concept"


# Private functions of at most six lines that are called once, and functions of more than six parameters, by room. The
# numbers only go down.
SHORT_ONCE = {
    "cli": 5,
    "concurrency": 19,
    "config": 7,
    "engine": 12,
    "errors.py": 1,
    "expressions": 29,
    "filters": 9,
    "format": 73,
    "handles": 23,
    "index": 28,
    "ingestion": 11,
    "merge": 17,
    "metadata": 7,
    "metadata_kinds": 33,
    "metadata_records": 12,
    "metadata_upkeep": 17,
    "operations": 36,
    "policies": 6,
    "properties": 4,
    "read": 46,
    "schema": 18,
    "services": 51,
    "slices": 22,
    "spark_sink": 3,
    "spark_source": 1,
    "statements": 3,
    "storage": 11,
    "testing.py": 2,
    "timeline": 21,
}
# Of the public ones (api.py, table.py, its views, lakebed.maintenance, lakebed.indexes) the parameters are options by
# keyword.
MANY_PARAMETERS = {
    "api.py": 2,
    "concurrency": 2,
    "format": 4,
    "handles": 1,
    "index": 3,
    "indexes.py": 1,
    "metadata_kinds": 3,
    "metadata_records": 1,
    "loading.py": 2,  # what every write takes
    "opened_table.py": 1,
    "operations": 9,
    "properties": 1,
    "queries.py": 1,
    "read": 5,
    "services": 2,
    "slices": 4,
    "spark_sink": 1,
    "table.py": 10,  # what every write takes: message, metadata, retries, once, options
    "table_columns.py": 1,  # `add`: the place, the comment and the default of a column
    "table_indexes.py": 2,
    "table_maintenance.py": 2,
    "table_stage.py": 1,  # `write` of a table
    "timeline": 1,
}
MAX_PARAMETERS = 6
SHORT = 6


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return function.body[ast.get_docstring(function) is not None :]


def room_of(name: str) -> str:
    return Path(name).parts[0]


def short_functions_called_once() -> dict[str, list[str]]:
    """By room: private functions of at most six lines whose name stands once in their file, in a call. A method that
    several classes of the room have is apart: each has lines of its own for the one call."""
    by_room: dict[str, list[str]] = {}
    methods = Counter(
        (room_of(name), method.name)
        for name, tree in modules()
        for kind in nodes_of(tree)
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
    )
    for name, tree in modules():
        nodes = nodes_of(tree)
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute)
        )
        called = {
            node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        }
        for function in functions(tree):
            body = body_of(function)
            is_private = function.name.startswith("_") and not function.name.endswith("_")  # as `_repr_html_` does
            is_once = uses[function.name] == 1 and function.name in called - names_in(function)
            is_short = bool(body) and (body[-1].end_lineno or 0) - body[0].lineno < SHORT
            is_of_several = methods[room_of(name), function.name] > 1
            if is_private and is_once and is_short and not is_of_several and not function.decorator_list:
                by_room.setdefault(room_of(name), []).append(f"{name}:{function.lineno}: {function.name}")
    return by_room


def functions_of_many_parameters() -> dict[str, list[str]]:
    """By room: functions of more than six parameters. Commands apart: each of their options is one."""
    by_room: dict[str, list[str]] = {}
    for name, tree in modules("cli"):
        for function in functions(tree):
            named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            count = sum(parameter.arg not in ("self", "cls") for parameter in named)
            if count > MAX_PARAMETERS:
                by_room.setdefault(room_of(name), []).append(f"{name}:{function.lineno}: {function.name}, {count}")
    return by_room


def beyond(budget: dict[str, int], by_room: dict[str, list[str]]) -> dict[str, list[str]]:
    """Rooms with more than their budget, and all that counts there."""
    return {room: listed for room, listed in by_room.items() if len(listed) > budget.get(room, 0)}


def test_a_private_function_called_once_is_worth_its_name() -> None:
    assert beyond(SHORT_ONCE, short_functions_called_once()) == {}, "write its lines where it is called"


def test_a_function_has_at_most_six_parameters() -> None:
    assert beyond(MANY_PARAMETERS, functions_of_many_parameters()) == {}


# Classes that are an interface of their own over another object.
FORWARDING = {"storage/folder.py FolderStorage", "timeline/archive.py ArchivedTimeline"}


def forwarded_to(method: ast.FunctionDef) -> str | None:
    """`x` for a method that is `return self.x.method(its own parameters)`, or `return self.x.name`."""
    body = body_of(method)
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) else None
    if isinstance(value, ast.Call):
        arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
        if not all(isinstance(argument, ast.Name | ast.Starred) for argument in arguments):
            return None
        value = value.func
    if isinstance(value, ast.Attribute) and isinstance(owner := value.value, ast.Attribute):
        return owner.attr if isinstance(owner.value, ast.Name) and owner.value.id == "self" else None
    return None


def test_no_class_only_forwards_to_another_object() -> None:
    forwarding: set[str] = set()
    for name, tree in modules():
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.endswith("__")]
                most = Counter(filter(None, map(forwarded_to, methods))).most_common(1)
                if most and most[0][1] > 2 and most[0][1] * 2 > len(methods):
                    forwarding.add(f"{name} {node.name}")
    assert forwarding <= FORWARDING, "call the object itself, or inherit from WrappedStorage"


# Calls and constructors that take more than five fields of one object, one after another.
COPYING = {
    "handles/group_writer.py _group",
    "services/clustering.py plan_clustering",
    "services/compaction.py of",
    "services/restore.py _align",
    "services/undo.py take_back",
    "write_status.py stat",
}
MAX_COPIED = 5


def fields_copied(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The most fields of one object that a call takes as arguments of the same names (or, of an object that is not the
    caller, without names), or that are assigned to attributes of the same names."""
    most = 0
    assigned: Counter[str] = Counter()
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            taken: list[tuple[str | None, ast.expr]] = [(None, argument) for argument in node.args]
            taken += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
            owners = Counter(
                value.value.id
                for name, value in taken
                if isinstance(value, ast.Attribute)
                and isinstance(value.value, ast.Name)
                and (value.value.id != "self" if name is None else name.lstrip("_") == value.attr.lstrip("_"))
            )
            most = max([most, *owners.values()])
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
            value = node.value
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                assigned[value.value.id] += target.attr.lstrip("_") == value.attr.lstrip("_")
    return max([most, *assigned.values()])


def test_no_object_copies_the_fields_of_another() -> None:
    copying = {
        f"{name} {function.name}"
        for name, tree in modules()
        for function in functions(tree)
        if fields_copied(function) > MAX_COPIED
    }
    assert copying <= COPYING, "hand the object over"


def layers() -> list[str]:
    """The rooms, from the top, as the import contract in pyproject.toml has them."""
    config = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    return [layer.strip("()") for layer in next(c["layers"] for c in contracts if c["type"] == "layers")]


# Rooms that know none above them, in types and inside functions neither.
WITHOUT_UPWARD_TYPES = ("metadata_upkeep", "metadata", "metadata_kinds", "slices", "metadata_records")


def test_the_metadata_table_and_the_slices_name_no_room_above_them_in_types_or_functions() -> None:
    order = layers()
    upward = [
        f"{name}:{node.lineno}: {node.module}"
        for name, tree in modules()
        if room_of(name) in WITHOUT_UPWARD_TYPES
        for node in nodes_of(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lakebed.")
        if order.index((node.module or "").split(".")[1]) < order.index(room_of(name))
    ]
    assert upward == []


# How many assertions of invariants the code has where rows may be lost. The numbers only go up.
ASSERTIONS = {"operations": 5, "handles": 12, "merge": 5, "metadata": 1, "metadata_kinds": 4, "metadata_upkeep": 7}


def test_invariants_are_asserted_where_rows_may_be_lost() -> None:
    counts = Counter(
        room_of(name) for name, tree in modules() for node in nodes_of(tree) if isinstance(node, ast.Assert)
    )
    assert {room: counts[room] for room, least in ASSERTIONS.items() if counts[room] < least} == {}


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Names and docstrings of what `import lakebed` gives, and of the methods and properties of a table and its views.

    A class of errors is shown by the example of `LakebedError`.
    """
    for name in lakebed.__all__:
        public = getattr(lakebed, name)
        is_error = inspect.isclass(public) and issubclass(public, lakebed.LakebedError)
        if callable(public) and (public is lakebed.LakebedError or not is_error):
            yield name, inspect.getdoc(public) or ""
    for cls in (lakebed.Table, IndexesView, SkewView, TimelineView, FilesView, BucketSkewView):
        yield cls.__name__, inspect.getdoc(cls) or ""
        for name, member in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield f"{cls.__name__}.{name}", inspect.getdoc(member) or ""


def test_every_conflict_names_its_kind() -> None:
    calls = [
        (f"{name}:{node.lineno}", node)
        for name, tree in modules()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CommitConflict"
    ]
    assert len(calls) > 50
    assert [where for where, call in calls if "kind" not in {word.arg for word in call.keywords}] == []


def test_each_patch_of_a_private_function_has_its_reason() -> None:
    patches: list[tuple[str, bool]] = []
    for path in sorted(TESTS.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if PRIVATE_PATCH.search(line):
                place = f"{path.relative_to(TESTS)}:{number + 1}"
                patches.append((place, lines[number - 1].lstrip().startswith("#")))
    assert len(patches) > 10
    assert [place for place, has_reason in patches if not has_reason] == [], (
        "take a wrapper of `lakebed.testing` where the test is about storage; else write the reason above the patch"
    )


def test_every_public_docstring_has_an_example() -> None:
    assert [name for name, text in public_docstrings() if ">>> " not in text] == []
