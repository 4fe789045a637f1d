"""`t.savepoints` is a view: it iterates, counts and prints."""

from __future__ import annotations

import lakebed


def test_savepoints_iterate_and_are_a_table() -> None:
    table = lakebed.load("memory://savepoints-view/trips", {"id": [1]}, key="id")
    first = table.savepoints.create(name="one", user="ada")
    table.upsert({"id": [2]})
    second = table.savepoints.create(user="bo")
    assert [saved.instant for saved in table.savepoints] == [first.instant, second.instant]
    assert table.savepoints.to_arrow().to_pylist() == [
        {"instant": s.instant, "user": s.user, "name": s.name, "created": s.created, "partitions": 1, "files": 1}
        for s in (first, second)
    ]
    assert str(table.savepoints.delete(first.instant)) == str(first)
    assert (len(table.savepoints), str(table.savepoints).count(second.instant)) == (1, 1)
