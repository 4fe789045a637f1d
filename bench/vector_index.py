"""The vector index beside Lance's: recall of the ten nearest, CPU milliseconds a query, CPU seconds and memory of a
build, bytes a vector; then a condition that leaves 2 %, and ten commits of 1,000 rows.

usage: vector_index.py [FOLDER] [CASE]; FOLDER has real vectors (base.npy, queries.npy), without it the first case is a
mixture as the others are. Each side of a case runs in a process of its own. The exact vectors are in memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.vector_index.codes import Coder, trained
from lakebed.vector_index.entries import WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer, write_layer
from lakebed.vector_index.search import Allowed, LayeredIndex
from lakebed.vector_index.shape import IndexShape, default_clusters, sample_rows

CASES = {"100k_128": (100_000, 128), "500k_128": (500_000, 128), "100k_768": (100_000, 768)}
SIDES = ("8 bits", "4 bits", "lance")
QUERIES, NEAREST, STEP = 300, 10, 20_000
GROUPS = Groups(pa.array([""]), pa.array(["file group"]))


def mixture(rows: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of clusters of very different sizes, and queries among them: points around centres in 24 dimensions,
    which a random net of two layers brings into more."""
    random = np.random.default_rng(11)
    centres = random.normal(size=(1000, 24)).astype(np.float32)
    shares = 1 / np.arange(1, 1001) ** 0.7
    first = random.normal(size=(24, 256)).astype(np.float32) / 5
    second = random.normal(size=(256, dimension)).astype(np.float32) / 16
    parts: list[np.ndarray] = []
    for start in range(0, rows + QUERIES, STEP):
        count = min(STEP, rows + QUERIES - start)
        points = centres[random.choice(1000, count, p=shares / shares.sum())]
        points = points + 0.5 * random.normal(size=points.shape).astype(np.float32)
        parts.append((np.tanh(points @ first) @ second).astype(np.float32))
    vectors = np.concatenate(parts)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    vectors = vectors[random.permutation(len(vectors))]
    return vectors[QUERIES:], vectors[:QUERIES]


def nearest(base: np.ndarray, queries: np.ndarray, live: np.ndarray | None = None) -> np.ndarray:
    """The rows of the ten largest products of each query."""
    best = []
    for start in range(0, len(queries), 50):
        near = queries[start : start + 50] @ base.T
        if live is not None:
            near[:, ~live] = -np.inf
        rows = np.argpartition(-near, NEAREST, axis=1)[:, :NEAREST]
        best.append(rows)
    return np.concatenate(best)


def recall(rows: Sequence[Any], truth: np.ndarray) -> float:
    return sum(len(set(map(int, a)) & set(b.tolist())) for a, b in zip(rows, truth, strict=True)) / truth.size


def timed(ask: Callable[[np.ndarray], Any], queries: np.ndarray) -> tuple[list[Any], float]:
    """The answers and the CPU milliseconds a query, of a second round."""
    for query in queries:
        ask(query)
    before = time.process_time()
    answers = [ask(query) for query in queries]
    return answers, round(1000 * (time.process_time() - before) / len(queries), 2)


def peak() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def layer(coder: Coder, instant: str, vectors: np.ndarray, rows: np.ndarray, step: int = STEP) -> tuple[Layer, int]:
    """A layer with these vectors under these row numbers, and its bytes."""
    keys = pa.array(np.char.add("key", np.char.zfill(rows.astype("U9"), 9)))
    hashes = row_hashes(keys, "")
    parts = (
        coded_entries(
            coder, WrittenRows(vectors[some], keys[some], hashes[some], np.zeros(len(vectors[some]), int), rows[some])
        )
        for some in (slice(start, start + step) for start in range(0, len(rows), step))
    )
    blocks: list[bytes] = []
    head = write_layer(parts, GROUPS, Changes(replaced=hashes) if instant else None, blocks.append)
    size = sum(map(len, blocks)) + len(head.to_bytes())
    return Layer(instant, head, lambda numbers: [blocks[n] for n in numbers]), size


def lakebed_figures(base: np.ndarray, queries: np.ndarray, bits: int) -> None:
    before = time.process_time()
    clusters = default_clusters(len(base))
    sample = np.sort(np.random.default_rng(0).permutation(len(base))[: sample_rows(clusters)])
    shape = IndexShape("emb", base.shape[1], bits=bits, clusters=clusters)
    coder = trained(shape, base[sample])
    built, size = layer(coder, "", base, np.arange(len(base)))
    print(
        f"  build {time.process_time() - before:.1f} CPU-s, peak {peak()} MB with the vectors,"
        f" {size / len(base):.0f} bytes a vector"
    )
    index = LayeredIndex(coder, [built])
    before = time.process_time()
    for query in queries[:20]:
        index.search(query[None], 50, 16)
    print(f"  the first 20 queries: {1000 * (time.process_time() - before) / 20:.1f} ms each")
    truth = nearest(base, queries)

    def ask(index: LayeredIndex, vectors: np.ndarray, count: int, probes: int, allowed: Allowed | None = None) -> Any:
        def of(query: np.ndarray) -> np.ndarray:
            rows = index.search(query[None], count, probes, allowed).rows
            near = np.einsum("ij,j->i", vectors[rows], query)
            return rows[np.argsort(-near)[:NEAREST]]

        return of

    for probes, count in ((8, 20), (16, 20), (16, 50), (32, 50), (32, 100), (32, 200)):
        answers, cost = timed(ask(index, base, count, probes), queries)
        print(f"  {probes:3} probes, {count:3} candidates: recall {recall(answers, truth):.4f}, {cost} ms")
    before = time.process_time()
    index.search(queries, 50, 16)
    print(
        f"  a batch of {len(queries)}, 16 probes, 50 candidates:"
        f" {1000 * (time.process_time() - before) / len(queries):.2f} ms a query"
    )
    live = np.arange(len(base)) % 50 == 7
    keys = pa.array(np.char.add("key", np.char.zfill(np.flatnonzero(live).astype("U9"), 9)))
    before = time.process_time()
    allowed = Allowed(row_hashes(keys, ""))
    spent = 1000 * (time.process_time() - before)
    for probes in (32, 64):
        answers, cost = timed(ask(index, base, 50, probes, allowed), queries)
        found = recall(answers, nearest(base, queries, live))
        print(f"  2 % allowed, {probes} probes: recall {found:.4f}, {cost} ms; {spent:.0f} ms for the hashes")
    layers, vectors = [built], base.copy()
    random = np.random.default_rng(3)
    for number in range(10):
        rows = random.permutation(len(base))[:1000]
        vectors[rows] = unit(
            base[random.permutation(len(base))[:1000]] + 0.02 * random.normal(size=(1000, base.shape[1]))
        )
        before = time.process_time()
        added, size = layer(coder, f"{number:03}", vectors[rows], rows)
        spent = 1000 * (time.process_time() - before)
        layers.append(added)
        if number in (0, 9):
            answers, cost = timed(ask(LayeredIndex(coder, layers), vectors, 50, 16), queries)
            found = recall(answers, nearest(vectors, queries))
            print(
                f"  after {number + 1} commits: recall {found:.4f}, {cost} ms;"
                f" a commit {spent:.0f} ms, {size // 1000} KB"
            )
    before = time.process_time()
    for _ in LayeredIndex(coder, layers).fold():
        pass
    print(f"  fold of ten commits: {time.process_time() - before:.1f} CPU-s")


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float32)


def lance_figures(base: np.ndarray, queries: np.ndarray) -> list[tuple[float, float]]:
    """Print what Lance takes for whole searches of a dataset that stays open, with two of its indexes: product
    quantisation, and codes of a bit. Returns the recall and the CPU milliseconds of each."""
    import lance

    truth = nearest(base, queries)
    figures: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(base.reshape(-1)), base.shape[1])
        dataset = lance.write_dataset(pa.table({"id": np.arange(len(base)), "emb": vectors}), name)
        for kind, options in (("IVF_PQ", {"num_sub_vectors": base.shape[1] // 4}), ("IVF_RQ", {})):
            before = time.process_time()
            partitions = default_clusters(len(base))
            dataset.create_index("emb", kind, metric="dot", num_partitions=partitions, replace=True, **options)
            cost = time.process_time() - before
            folder = max(Path(name, "_indices").iterdir(), key=lambda path: path.stat().st_mtime)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            print(f"  {kind}: build {cost:.1f} CPU-s, {size / len(base):.0f} bytes a vector", flush=True)
            for probes, refine in ((16, 5), (32, 5), (32, 20), (64, 20)):

                def of(query: np.ndarray, probes: int = probes, refine: int = refine) -> Any:
                    nearest = {"column": "emb", "q": query, "k": NEAREST, "nprobes": probes, "refine_factor": refine}
                    return dataset.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist()

                answers, cost = timed(of, queries)
                figures.append((recall(answers, truth), cost))
                print(f"  {kind}, {probes:3} probes, refine {refine:3}: recall {figures[-1][0]:.4f}, {cost} ms")
    return figures


def main() -> None:
    folder = next((Path(word) for word in sys.argv[1:] if Path(word).is_dir()), None)
    cases = [word for word in sys.argv[1:] if word in CASES] or list(CASES)
    if len(sys.argv) == 4 and sys.argv[3] in SIDES:
        base, queries = np.load(sys.argv[1] + "/base.npy"), np.load(sys.argv[1] + "/queries.npy")
        side = sys.argv[3]
        lance_figures(base, queries) if side == "lance" else lakebed_figures(base, queries, int(side[0]))
        return
    for case in cases:
        rows, dimension = CASES[case]
        is_real = folder is not None and case == next(iter(CASES))
        base, queries = (
            mixture(rows, dimension) if not is_real else (np.load(folder / n) for n in ("base.npy", "queries.npy"))
        )
        with tempfile.TemporaryDirectory() as name:
            np.save(f"{name}/base.npy", unit(base.astype(np.float32)))
            np.save(f"{name}/queries.npy", queries[:QUERIES].astype(np.float32))
            for side in SIDES:
                print(f"{case}, {'real vectors' if is_real else 'a mixture'}, {side}", flush=True)
                subprocess.run([sys.executable, __file__, name, case, side], check=False, env=os.environ)


if __name__ == "__main__":
    main()
