"""The topics of Python's manual, which Python itself ships, as a table with vectors: which topics answer a question?"""

from __future__ import annotations

from importlib import import_module

import pyarrow as pa

import lakebed
from lakebed import variant
from nearest_texts.vectors import Embedding

DIMENSION = 48
QUESTIONS = (
    "repeat a block of statements in a loop until the condition is false",
    "handle an exception that was raised, and clean up afterwards",
    "slice a list, take the last items of a sequence",
    "import a module from a package",
)


def topics() -> dict[str, str]:
    """The texts of Python's manual by their names."""
    return dict(import_module("pydoc_data.topics").topics)


def build(uri: str) -> tuple[lakebed.Table, Embedding]:
    """A table of the topics with a vector each, and what facts there are of each text in a VARIANT column."""
    texts = topics()
    embedding = Embedding.fit(list(texts.values()), DIMENSION)
    columns = pa.schema(
        [
            ("topic", pa.string()),
            ("text", pa.string()),
            ("embedding", lakebed.vector(DIMENSION)),
            ("facts", variant.TYPE),
        ]
    )
    table = lakebed.create(uri, columns, key="topic", type="mor")
    facts = [{"characters": len(text), "title": text.strip().partition("\n")[0]} for text in texts.values()]
    table.upsert(
        pa.table(
            {
                "topic": list(texts),
                "text": list(texts.values()),
                "embedding": pa.array(list(embedding(list(texts.values()))), pa.list_(pa.float32())),
                "facts": variant.encode(facts),
            }
        )
    )
    return table, embedding


def answers(table: lakebed.Table, embedding: Embedding, question: str, k: int = 3, **options: object) -> list[str]:
    """The topics that are nearest to a question."""
    (vector,) = embedding([question])
    return table.search(vector, k, columns=["topic"], **options).to_arrow()["topic"].to_pylist()  # type: ignore[arg-type]


def run(uri: str) -> dict[str, list[str]]:
    """The nearest topics of each question."""
    table, embedding = build(uri)
    return {question: answers(table, embedding, question) for question in QUESTIONS}
