"""Moves and joins the files of src/lakebed as a plan says: {new file: [files of today]}, names relative to src/lakebed.

    python tools/moves/files.py tools/moves/plan.json [--only FOLDER ...] [--except FOLDER ...] [--renames NAMES.json]

Bodies are joined in the order of their imports, imports are gathered at the top, top-level names that two of the files
have are renamed, and every import and dotted name in the repository follows. `ruff check --fix` and `ruff format` after
it drop what is imported in vain and order the rest. NAMES.json gives better names to what would be renamed by itself:
{file of today: {name: new name}}.
"""

# ruff: noqa: N815
# pyright: basic, reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path.cwd()
SRC = ROOT / "src" / "lakebed"


def dotted(name: str) -> str:
    parts = name.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["lakebed", *parts])


@dataclass
class Source:
    name: str
    text: str = ""
    doc: str = ""
    imports: list[str] = field(default_factory=list)
    typing: list[str] = field(default_factory=list)
    body: str = ""
    tops: dict[str, str] = field(default_factory=dict)  # name -> its text
    bound: dict[str, str] = field(default_factory=dict)  # imported name -> where from

    def parse(self) -> None:
        self.text = (SRC / self.name).read_text()
        self.split()

    def split(self) -> None:
        tree = ast.parse(self.text)
        lines = self.text.splitlines(keepends=True)
        taken: set[int] = set()
        self.imports, self.typing, self.tops, self.bound, self.doc = [], [], {}, {}, ""
        for number, node in enumerate(tree.body):
            start, end = node.lineno - 1, node.end_lineno or node.lineno
            text = "".join(lines[start:end])
            if number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.doc = text.strip()
                taken.update(range(start, end))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                taken.update(range(start, end))
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    continue
                self.imports.append(text.rstrip("\n"))
                self._bind(node)
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
                taken.update(range(start, end))
                for one in node.body:
                    self.typing.append("".join(lines[one.lineno - 1 : one.end_lineno]).rstrip("\n"))
                    if isinstance(one, ast.Import | ast.ImportFrom):
                        self._bind(one)
            else:
                for name in names_of(node):
                    self.tops[name] = self.tops.get(name, "") + text
        self.body = "".join(line for n, line in enumerate(lines) if n not in taken).strip("\n") + "\n"

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            self.bound[alias.asname or alias.name.split(".")[0]] = whole


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.If | ast.Try | ast.For | ast.With):
        return [name for one in node.body for name in names_of(one)]
    return []


class Renamer(ast.NodeVisitor):
    """The places of global names in a module."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.scopes: list[set[str]] = []
        self.places: list[tuple[int, int, str]] = []
        self.warnings: list[str] = []

    def _local(self, node: ast.AST) -> set[str]:
        bound: set[str] = set()
        args = getattr(node, "args", None)
        if isinstance(args, ast.arguments):
            for a in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
                if a is not None:
                    bound.add(a.arg)
        declared: set[str] = set()
        body = node.body if isinstance(node.body, list) else [node.body]
        todo: list[ast.AST] = [*body]
        if hasattr(node, "generators"):
            todo = list(node.generators)
        while todo:
            one = todo.pop()
            if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                bound.add(one.name)
                continue
            if isinstance(one, ast.Lambda):
                continue
            if isinstance(one, ast.Global):
                declared.update(one.names)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
                bound.add(one.id)
            if isinstance(one, ast.ExceptHandler) and one.name:
                bound.add(one.name)
            if isinstance(one, ast.alias):
                bound.add(one.asname or one.name.split(".")[0])
            if isinstance(one, ast.MatchAs | ast.MatchStar) and one.name:
                bound.add(one.name)
            if isinstance(one, ast.MatchMapping) and one.rest:
                bound.add(one.rest)
            if isinstance(one, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                for sub in ast.walk(one):  # only walrus leaks
                    if isinstance(sub, ast.NamedExpr):
                        bound.add(sub.target.id)
                continue
            todo.extend(ast.iter_child_nodes(one))
        return bound - declared

    def _function(self, node: ast.AST) -> None:
        for d in getattr(node, "decorator_list", []):
            self.visit(d)
        args = node.args
        for d in [*args.defaults, *args.kw_defaults]:
            if d is not None:
                self.visit(d)
        for a in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if a is not None and a.annotation is not None:
                self.visit(a.annotation)
        if getattr(node, "returns", None) is not None:
            self.visit(node.returns)
        if not isinstance(node, ast.Lambda):
            self._definition(node)
        self.scopes.append(self._local(node))
        for one in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(one)
        self.scopes.pop()

    def _definition(self, node: ast.AST) -> None:
        if node.name in self.names and not self.scopes and not getattr(self, "in_class", 0):
            self.places.append((node.lineno, -1, node.name))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._definition(node)
        self.in_class = getattr(self, "in_class", 0) + 1
        # names bound in the class body, seen by its other statements alone
        own = {n for one in node.body for n in names_of(one)}
        for n in own & self.names:
            self.warnings.append(f"class {node.name} has a member {n}")
        self.generic_visit(node)
        self.in_class -= 1

    def _comprehension(self, node: ast.AST) -> None:
        bound = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self.visit(node.generators[0].iter)
        self.scopes.append(bound)
        for number, g in enumerate(node.generators):
            if number:
                self.visit(g.iter)
            for c in g.ifs:
                self.visit(c)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.names and not any(node.id in s for s in self.scopes):
            self.places.append((node.lineno, node.col_offset, node.id))

    def visit_Global(self, node: ast.Global) -> None:
        for n in node.names:
            if n in self.names:
                self.places.append((node.lineno, -1, n))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value in self.names:
            self.warnings.append(f"text {node.value!r} in line {node.lineno}")


def renamed(text: str, names: dict[str, str], where: str) -> str:
    finder = Renamer(set(names))
    finder.visit(ast.parse(text))
    for warning in finder.warnings:
        print(f"  look: {where}: {warning}")
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for line, column, name in sorted(set(finder.places), reverse=True):
        old, new = name.encode(), names[name].encode()
        raw = lines[line - 1]
        if column < 0:
            lines[line - 1] = re.sub(rb"\b" + re.escape(old) + rb"\b", new, raw, count=1)
        else:
            assert raw[column : column + len(old)] == old, (where, line, column, name, raw)
            lines[line - 1] = raw[:column] + new + raw[column + len(old) :]
    return b"".join(lines).decode()


def ordered(sources: list[Source]) -> list[Source]:
    """Those that others import first."""
    by_module = {dotted(s.name): s for s in sources}
    done: list[Source] = []

    def add(one: Source, seen: tuple[str, ...] = ()) -> None:
        if one in done or one.name in seen:
            return
        for whole in one.bound.values():
            for module, other in by_module.items():
                if other is not one and (whole == module or whole.rpartition(".")[0] == module):
                    add(other, (*seen, one.name))
        done.append(one)

    for one in sources:
        add(one)
    return done


def stem(name: str) -> str:
    path = name.removesuffix(".py").split("/")
    return path[-1]


def collisions(target: str, sources: list[Source], renames: dict[str, dict[str, str]]) -> None:
    """Rename what two of the files call alike."""
    used: dict[str, Source] = {}
    own = {dotted(s.name) for s in sources}
    everywhere = {n for s in sources for n in [*s.tops, *s.bound]}
    for one in sources:
        new: dict[str, str] = {}
        for name, text in one.tops.items():
            other = used.get(name)
            if other is None:
                importer = next(
                    (
                        s
                        for s in sources
                        if s is not one
                        and s.bound.get(name, "").rpartition(".")[0] not in {*own, ""}
                        and name in s.bound
                    ),
                    None,
                )
                if importer is None:
                    used[name] = one
                    continue
                print(f"  imported and defined: {target}: {name} ({one.name}, imported by {importer.name})")
            elif other.tops[name] == text:
                one.body = one.body.replace(text, "", 1)
                one.text = one.text.replace(text, "", 1)
                print(f"  twice the same: {target}: {name} ({one.name} and {other.name})")
                continue
            lead = "_" if name.startswith("_") else ""
            bare = name.lstrip("_")
            made = (
                f"{lead}{stem(one.name).upper()}_{bare}"
                if bare.isupper()
                else (
                    f"{lead}{stem(one.name)}_{bare}"
                    if bare[:1].islower()
                    else f"{lead}{stem(one.name).title().replace('_', '')}{bare}"
                )
            )
            assert made not in everywhere, made
            new[name] = renames.get(one.name, {}).get(name, made)
            print(f"  renamed: {target}: {one.name}:{name} -> {new[name]}")
        if new:
            one.text = renamed(one.text, new, one.name)
            one.split()
            RENAMED[dotted(one.name)] = new


RENAMED: dict[str, dict[str, str]] = {}


def joined(target: str, sources: list[Source]) -> str:
    docs = [s.doc for s in sorted(sources, key=lambda s: -len(s.text)) if s.doc]
    texts = [ast.literal_eval(d) for d in docs]
    doc = '"""' + "\n\n".join(t.strip() for t in texts) + ("\n" if "\n" in texts[0] or len(texts) > 1 else "") + '"""\n'
    if any("\\" in d for d in docs):
        doc = "r" + doc
    parts = ordered(sources)
    imports = [i for s in parts for i in s.imports]
    typing = [t for s in parts for t in s.typing]
    own = {dotted(s.name) for s in sources}
    out = doc + "\nfrom __future__ import annotations\n\n" + "\n".join(dict.fromkeys(imports)) + "\n\n"
    if typing:
        out += "if TYPE_CHECKING:\n" + "\n".join(dict.fromkeys(typing)) + "\n\n"
    out += "\n\n".join(s.body for s in parts)
    return without_own_imports(out, own)


def without_own_imports(text: str, own: set[str]) -> str:
    """Without imports from files that are the same file now."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in sorted((n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)), key=lambda n: -n.lineno):
        if node.module in own:
            back = RENAMED.get(node.module or "", {})
            pad = " " * node.col_offset
            keep = [
                f"{pad}{a.asname} = {back.get(a.name, a.name)}\n"
                for a in node.names
                if a.asname and a.asname != back.get(a.name, a.name)
            ]
            plain = [a.name for a in node.names if not a.asname and a.name in back]
            for a in plain:
                print(f"  own import of a renamed name: {a}")
            if not keep and node.col_offset and "TYPE_CHECKING" in lines[node.lineno - 2]:
                keep = [f"{pad}pass\n"]
            lines[node.lineno - 1 : node.end_lineno] = keep
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("plan")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--except", dest="but", nargs="*", default=[])
    parser.add_argument("--renames")
    given = parser.parse_args()
    plan: dict[str, list[str]] = json.loads(Path(given.plan).read_text())
    renames = json.loads(Path(given.renames).read_text()) if given.renames else {}

    def chosen(target: str) -> bool:
        return (not given.only or any(target == o or target.startswith(o + "/") for o in given.only)) and not any(
            target == o or target.startswith(o + "/") for o in given.but
        )

    moved: dict[str, str] = {}
    written: dict[Path, str] = {}
    removed: set[Path] = set()
    for target, names in plan.items():
        if not chosen(target) or names == [target]:
            continue
        names = [n for n in names if (SRC / n).exists()]
        if not names or names == [target]:
            continue
        sources = [Source(n) for n in names]
        for one in sources:
            one.parse()
        moved.update({dotted(n): dotted(target) for n in names if n != target})
        removed.update(SRC / n for n in names)
        if len(sources) > 1:
            sources.sort(key=lambda s: -len(s.text))
            collisions(target, sources, renames)
        written[SRC / target] = joined(target, sources) if len(sources) > 1 else sources[0].text
    for path in removed:
        path.unlink()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        assert not path.exists(), path
        path.write_text(text)
        folder = path.parent
        while folder != SRC:
            if not (folder / "__init__.py").exists():
                (folder / "__init__.py").write_text("")
            folder = folder.parent
    follow(moved)
    for folder in sorted(SRC.rglob("*"), reverse=True):
        if (
            folder.is_dir()
            and folder.name != "__pycache__"
            and not [p for p in folder.rglob("*") if p.is_file() and p.name != "__init__.py" and p.suffix != ".pyc"]
        ):
            shutil.rmtree(folder)


def texts() -> list[Path]:
    named = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [
        ROOT / n
        for n in named
        if n
        and (ROOT / n).is_file()
        and n.split("/")[0] != "locks"
        and not n.startswith("tests/golden/")
        and re.search(r"\.(py|md|toml|ipynb|yml|yaml|sh|cfg|json)$|Makefile$|\.ci/run$|tools/", n)
    ]


def follow(moved: dict[str, str]) -> None:
    if not moved:
        return
    order = sorted(moved, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w.])(" + "|".join(re.escape(m) for m in order) + r")(?![\w])")
    paths = {m.replace(".", "/") + ".py": n.replace(".", "/") + ".py" for m, n in moved.items()}
    path_pattern = re.compile(
        r"(?<![\w/.])((?:src/)?)(" + "|".join(re.escape(m) for m in sorted(paths, key=len, reverse=True)) + ")"
    )
    names = {f"{m}.{old}": f"{m}.{new}" for m, table in RENAMED.items() for old, new in table.items()}
    for path in texts():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        before = text
        for old, new in names.items():
            text = re.sub(r"(?<![\w.])" + re.escape(old) + r"\b", new, text)
        if path.suffix == ".py":
            text = module_imports(path, text, moved)
        text = pattern.sub(lambda m: moved[m[1]], text)
        text = path_pattern.sub(lambda m: m[1] + paths[m[2]], text)
        if text != before:
            path.write_text(text)


def module_imports(path: Path, text: str, moved: dict[str, str]) -> str:
    """Imports of modules as names of their package, and of renamed names."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in sorted(
        (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("lakebed")),
        key=lambda n: -n.lineno,
    ):
        pad = " " * node.col_offset
        modules = [a for a in node.names if f"{node.module}.{a.name}" in moved]
        table = RENAMED.get(node.module or "", {})
        if not modules and not any(a.name in table for a in node.names):
            continue
        out: list[str] = []
        rest = []
        for a in node.names:
            if a in modules:
                package, _, name = moved[f"{node.module}.{a.name}"].rpartition(".")
                alias = a.asname or a.name
                out.append(f"{pad}from {package} import {name}" + (f" as {alias}" if alias != name else "") + "\n")
            elif a.name in table:
                rest.append(f"{table[a.name]} as {a.asname or a.name}")
            else:
                rest.append(a.name + (f" as {a.asname}" if a.asname else ""))
        if rest:
            out.append(f"{pad}from {node.module} import ({', '.join(rest)})\n")
        lines[node.lineno - 1 : node.end_lineno] = out
    return "".join(lines)


if __name__ == "__main__":
    main()
