"""Moves top-level definitions from file to file, as the lines of a file say: `a/b.py:Name,Other c/d.py [top]`."""

# pyright: basic, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
import ast
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from files import SRC, dotted, names_of, texts


def nodes_of(text):
    return ast.parse(text).body


def listed(aliases):
    return ", ".join(x.name + (f" as {x.asname}" if x.asname else "") for x in aliases)


def move(old, names, new, top):
    a, b = SRC / old, SRC / new
    text = a.read_text()
    lines = text.splitlines(keepends=True)
    blocks, cut = [], []
    for node in nodes_of(text):
        if set(names_of(node)) & set(names):
            start = min([node.lineno, *[d.lineno for d in getattr(node, "decorator_list", [])]]) - 1
            while start and lines[start - 1].startswith("#"):
                start -= 1
            blocks.append("".join(lines[start : node.end_lineno]))
            cut.append((start, node.end_lineno))
            # a docstring of a constant
    found = {n for node in nodes_of(text) for n in names_of(node)}
    assert set(names) <= found, (old, set(names) - found)
    body = nodes_of(text)
    for i, node in enumerate(body):  # texts behind constants
        if (
            i
            and isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and set(names_of(body[i - 1])) & set(names)
        ):
            blocks[-1] += "".join(lines[node.lineno - 1 : node.end_lineno])
            cut.append((node.lineno - 1, node.end_lineno))
    for s, e in sorted(cut, reverse=True):
        del lines[s:e]
    rest = "".join(lines)
    imports = [
        ast.get_source_segment(text, n)
        for n in body
        if isinstance(n, (ast.Import, ast.ImportFrom)) and getattr(n, "module", "") != "__future__"
    ]
    own = [n for node in nodes_of(rest) for n in names_of(node)]
    used = {n.id for bl in blocks for n in ast.walk(ast.parse(bl)) if isinstance(n, ast.Name)}
    back = sorted(used & set(own))
    if back:
        print("  needs of", old, ":", back)
    still = sorted({n.id for n in ast.walk(ast.parse(rest)) if isinstance(n, ast.Name)} & set(names))
    target = b.read_text() if b.exists() else '"""TODO"""\n\nfrom __future__ import annotations\n'
    tl = target.splitlines(keepends=True)
    last = max([n.end_lineno for n in nodes_of(target) if isinstance(n, (ast.Import, ast.ImportFrom))], default=1)
    extra = imports + ([f"from {dotted(old)} import {', '.join(back)}"] if back else [])
    extra = [i for i in extra if not re.match(rf"from {re.escape(dotted(new))} import", i)]
    head = "".join(tl[:last]) + "\n".join(extra) + "\n"
    tail = "".join(tl[last:])
    block = "\n\n".join(blocks)
    b.write_text(head + "\n\n" + block + "\n\n" + tail if top else head + tail + "\n\n" + block)
    if still:
        rl = rest.splitlines(keepends=True)
        at = max([n.end_lineno for n in nodes_of(rest) if isinstance(n, (ast.Import, ast.ImportFrom))], default=1)
        rest = "".join(rl[:at]) + f"from {dotted(new)} import {', '.join(still)}\n" + "".join(rl[at:])
    a.write_text(rest)
    om, nm = dotted(old), dotted(new)
    for p in texts():
        t = before = p.read_text()
        for n in names:
            t = re.sub(rf"(?<![\w.]){re.escape(om)}\.{n}\b", f"{nm}.{n}", t)
        if p.suffix == ".py" and om in t:
            ls = t.splitlines(keepends=True)
            for node in sorted(
                (n for n in ast.walk(ast.parse(t)) if isinstance(n, ast.ImportFrom) and n.module == om),
                key=lambda n: -n.lineno,
            ):
                mine = [x for x in node.names if x.name in names]
                if not mine:
                    continue
                pad = " " * node.col_offset
                other = [x for x in node.names if x.name not in names]
                out = [f"{pad}from {om} import ({listed(other)})\n"] if other else []
                if p != b:
                    out.append(f"{pad}from {nm} import ({listed(mine)})\n")
                ls[node.lineno - 1 : node.end_lineno] = out
            t = "".join(ls)
        if t != before:
            p.write_text(t)


for line in Path(sys.argv[1]).read_text().splitlines():
    if line.strip() and not line.startswith("#"):
        src, new, *rest = line.split()
        old, names = src.split(":")
        print(line)
        move(old, names.split(","), new, "top" in rest)

        subprocess.run(["ruff", "check", "--fix", "-q", "--select", "I,F401", "src", "tests", "bench"])
        subprocess.run(["ruff", "format", "-q", "src", "tests", "bench"])
