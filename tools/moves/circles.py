"""Circles of imports at module level in src/lakebed."""

# pyright: basic
import ast
import sys
from pathlib import Path

src = Path("src/lakebed")
mods = {}
for p in src.rglob("*.py"):
    parts = list(p.relative_to("src").with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    mods[".".join(parts)] = p
graph = {}


def tops(body):
    for n in body:
        if isinstance(n, (ast.Import, ast.ImportFrom)):
            yield n
        elif isinstance(n, (ast.If, ast.Try)) and "TYPE_CHECKING" not in ast.dump(getattr(n, "test", n)):
            yield from tops(n.body)


for m, p in mods.items():
    out = set()
    for n in tops(ast.parse(p.read_text()).body):
        if isinstance(n, ast.ImportFrom) and n.module:
            for a in n.names:
                w = f"{n.module}.{a.name}"
                out.add(w if w in mods else n.module)
        elif isinstance(n, ast.Import):
            out.update(a.name for a in n.names)
    graph[m] = {o for o in out if o in mods and o != m}
# tarjan
idx = {}
low = {}
st = []
on = set()
res = []
sys.setrecursionlimit(10000)


def go(v):
    idx[v] = low[v] = len(idx)
    st.append(v)
    on.add(v)
    for w in graph[v]:
        if w not in idx:
            go(w)
            low[v] = min(low[v], low[w])
        elif w in on:
            low[v] = min(low[v], idx[w])
    if low[v] == idx[v]:
        c = []
        while True:
            w = st.pop()
            on.discard(w)
            c.append(w)
            if w == v:
                break
        if len(c) > 1:
            res.append(c)


for v in graph:
    if v not in idx:
        go(v)
for c in res:
    s = set(c)
    print("circle of", len(c))
    if len(c) <= 8 or "-v" in sys.argv:
        for v in sorted(c):
            print("  ", v, "->", sorted(graph[v] & s))
    else:
        print("  ", sorted(c)[:60])
print("files", len(mods))
