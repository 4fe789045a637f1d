"""Each source file has a test of its name, or a row of where.tsv that says which test to look at."""

from __future__ import annotations

from pathlib import Path

import where_tested

TESTS = where_tested.UNIT.parent


def test_every_source_file_has_a_test_of_its_name_or_a_row_that_names_one() -> None:
    sources, rows = where_tested.sources(), where_tested.rows()
    unnamed = [s for s in sources if s not in rows and not where_tested.own_test(s).exists()]
    assert unnamed == [], "write tests/unit/<room>/test_<file>.py, or a row of tests/unit/where.tsv"


def test_every_row_is_of_a_source_file_without_a_test_of_its_name_and_its_tests_exist() -> None:
    sources, rows = set(where_tested.sources()), where_tested.rows()
    assert [s for s in rows if s not in sources] == [], "there is no such source file, or it has no function"
    assert [s for s in rows if where_tested.own_test(s).exists()] == [], "it has a test of its name: remove the row"
    named = {(source, test) for source, tests in rows.items() for test in tests}
    assert [row for row in sorted(named) if not (TESTS / row[1]).exists()] == [], "there is no such test file"
    assert [source for source, tests in rows.items() if not tests] == []
    assert list(rows) == sorted(rows)


def test_the_test_that_calls_most_of_a_file_is_named_and_of_nearly_equal_ones_the_nearest() -> None:
    functions = [str(n) for n in range(20)]
    wide, room, narrow = (f"tests/unit/{name}.py" for name in ("test_wide", "index/test_room", "read/test_narrow"))
    breadth = {wide: 900, room: 500, narrow: 30}
    called = {wide: functions, room: functions[:17], narrow: functions[:17]}
    assert where_tested.nearest("index/a.py", called, breadth) == room
    assert where_tested.nearest("merge/a.py", called, breadth) == narrow
    assert where_tested.nearest("merge/a.py", called | {narrow: functions[:16]}, breadth) == room
    assert where_tested.nearest("merge/a.py", {wide: functions, narrow: functions[:16]}, breadth) == wide
    assert where_tested.nearest("merge/a.py", {}, breadth) is None


def test_the_test_of_a_file_is_in_the_room_of_the_file() -> None:
    assert where_tested.own_test("index/hbase/index.py").relative_to(TESTS) == Path("unit/index/hbase/test_index.py")
    assert where_tested.own_test("table.py").relative_to(TESTS) == Path("unit/test_table.py")
