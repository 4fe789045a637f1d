"""A text index: how long a build and a query take, and whether tantivy finds the same rows.

Run: python bench/text_index.py [rows]. Texts are made of words by Zipf's law. The comparison runs where the package
tantivy is installed (`pip install tantivy`); its equally good rows are ordered otherwise, so scores are compared.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

import lakebed
from lakebed.read.text_search import opened_index
from lakebed.text_index.words import query_words

QUERIES = 100
K = 10


def texts_of(rows: int, words: int = 40_000) -> tuple[pa.Array, list[str]]:
    """Texts of 4 to 15 words, and queries of two or three words that come together."""
    random = np.random.default_rng(1)
    letters = random.integers(97, 123, (words, 10)).astype(np.uint8)
    sizes = random.integers(2, 11, words)
    vocabulary = [bytes(letters[n, : sizes[n]]).decode() for n in range(words)]
    shares = 1 / np.arange(1, words + 1)
    lengths = random.integers(4, 16, rows)
    chosen = random.choice(words, int(lengths.sum()), p=shares / shares.sum())
    ends = np.cumsum(lengths)
    texts = [" ".join(vocabulary[n] for n in part) for part in np.split(chosen, ends[:-1])]
    queries = [" ".join(texts[n].split()[: 2 + n % 2]) for n in random.integers(0, rows, QUERIES).tolist()]
    return pa.array(texts), queries


def cpu(run: object) -> tuple[float, object]:
    start = time.process_time()
    result = run()  # type: ignore[operator]
    return time.process_time() - start, result


def by_tantivy(texts: pa.Array, queries: list[str]) -> list[list[float]]:
    """The scores of the best rows for each query."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body")
    index = tantivy.Index(builder.build())

    def build() -> None:
        writer = index.writer(num_threads=1)
        for text in texts.to_pylist():
            writer.add_document(tantivy.Document(body=text))
        writer.commit()
        writer.wait_merging_threads()

    seconds, _ = cpu(build)
    index.reload()
    searcher = index.searcher()
    print(f"tantivy: build {seconds:.2f} CPU-s, {searcher.num_segments} segments")
    start = time.process_time()
    found = [searcher.search(index.parse_query(query, ["body"]), K).hits for query in queries]
    print(f"tantivy: {1000 * (time.process_time() - start) / len(queries):.2f} ms a query")
    return [[score for score, _ in hits] for hits in found]


def main(rows: int) -> None:
    texts, queries = texts_of(rows)
    schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
    table = lakebed.create("memory://bench/texts", schema, key="id")
    table.insert(pa.table({"id": np.arange(rows), "body": texts}))
    seconds, _ = cpu(lambda: table.indexes.create("text", column="body"))
    size = table.indexes.list()[-1].bytes
    print(f"{rows:,} texts, {texts.nbytes / 1e6:.1f} MB: build {seconds:.2f} CPU-s, {size / 1e6:.1f} MB")
    seconds, opened = cpu(lambda: opened_index(table.scan(), "body"))
    assert opened is not None
    text = opened[1]  # type: ignore[index]
    print(f"open {1000 * seconds:.0f} ms")
    for name in ("cold", "warm"):
        seconds, best = cpu(lambda: [text.search(text.query(query_words(query)), K) for query in queries])
        print(f"{name}: {1000 * seconds / QUERIES:.2f} ms a query, the index alone")
    seconds, _ = cpu(lambda: [table.search(text=query, columns=["id"]).to_arrow() for query in queries[:20]])
    print(f"t.search: {1000 * seconds / 20:.1f} ms a query, with its rows")
    seconds, _ = cpu(lambda: table.search(text=queries[0], columns=["id"], exact=True).to_arrow())
    print(f"t.search, exact: {1000 * seconds:.0f} ms a query")
    try:
        others = by_tantivy(texts, queries)
    except ImportError:
        return
    equal = sum(
        len(mine.scores) == len(theirs) and bool(np.allclose(mine.scores, theirs, rtol=1e-4))
        for mine, theirs in zip(best, others, strict=True)  # type: ignore[call-overload]
    )
    print(f"the best {K} have tantivy's scores in {equal} of {QUERIES} queries")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
