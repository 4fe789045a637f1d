"""Files of every kind, changed: the right rows or an error that names the file, never other or fewer rows.

3,000 cases with LAKEBED_FUZZ=all; otherwise a part of them, another one each day.

Some changes cannot be seen, since nothing in the format tells of them; `unseen` lists them all. Of these only this is
asked: no raw error, no hang, no memory beyond bounds.
"""

from __future__ import annotations

import resource
from collections import Counter

import pytest

from lakebed.errors import CorruptFile, LakebedError
from support.mutated_tables import ASKED, CASES_A_TABLE, IN_PLACE, QUESTIONS, TABLES, Case, case, placed
from support.sampling import FUZZ, today, whole
from support.time_limit import Hangs, limited

CASES = 3000
ALL = whole(FUZZ)
# Of three tables a day.
SAMPLE = 3 * 40
SECONDS_A_QUESTION = 30
GROWTH_KB = 1 << 20


def numbers() -> list[int]:
    if ALL:
        return list(range(CASES))
    day = today()
    tables = [(3 * day + n) % len(TABLES) for n in range(3)]
    first = day * 7 % (CASES_A_TABLE - 40)
    return [table * CASES_A_TABLE + first + n for table in tables for n in range(40)]


def unseen(case: Case) -> str:
    """Why a change cannot show; empty where it must."""
    in_place = case.mutation in IN_PLACE
    match case.kind:
        case "base file" if in_place:
            return "neither Parquet's footer nor a page without checksum tells that it was changed"
        case "base file" if case.mutation == "swapped" and case.is_of_same_size:
            return "the commit knows the size alone"
        case "properties" if case.mutation not in ("deleted", "emptied"):
            return "the checksum in hoodie.properties is of the table's name alone"
        case "index definitions" if in_place or case.mutation in ("deleted", "swapped"):
            return "index.json has no checksum"
        case "instant" if in_place and not case.has_digest:
            return "bodies of real Hudi, and those of version 6, have no checksum"
        case "instant" if case.mutation == "deleted":
            return "an instant whose file is gone is one that never completed"
        case "instant" if case.mutation == "swapped" and not case.names_base_files:
            return "a body that names no files says nothing of its instant"
        case "archive" if in_place or case.mutation in ("deleted", "emptied", "swapped"):
            return "archived instants have no checksum, and nothing else names them"
        case "pending instant" if in_place or case.mutation in ("deleted", "swapped"):
            return "a plan has no checksum but its own, and one that is gone was never made"
        case _:
            return ""


def outcome(case: Case, uri: str, question: str) -> str:
    """`right`, `refused`, or what is wrong."""
    expected = case.sample.answers[question]
    try:
        with limited(SECONDS_A_QUESTION):
            found = QUESTIONS[question](uri, case.sample.answers)
    except LakebedError as error:
        return "refused" if is_named(case, error) else f"{type(error).__name__} without the file's name: {error}"
    except Hangs:
        return "hangs"
    except Exception as error:
        return f"raw {error!r}"
    if found == expected:
        return "right"
    return f"{(expected - found).total()} rows missing, {(found - expected).total()} not expected"


def is_named(case: Case, error: LakebedError) -> bool:
    """Whether an error is about the file: what is in `hoodie.properties` decides about all that comes after."""
    name = case.path.rpartition("/")[2]
    return isinstance(error, CorruptFile) or case.kind == "properties" or name in f"{error} {error.context}"


@pytest.mark.rest
def test_mutated_files_give_the_right_rows_or_an_error_that_names_them() -> None:
    seen, wrong = Counter[str](), list[str]()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers():
        one = case(number)
        if one is None:
            continue
        weak = unseen(one)
        with placed(one.files) as uri:
            for question in ASKED:
                if question not in one.sample.answers:
                    continue
                found = outcome(one, uri, question)
                seen[found if found in ("right", "refused") else "unseen"] += 1
                if found not in ("right", "refused") and (not weak or is_never_right(found)):
                    wrong.append(f"{one}, {question}: {found}")
    assert not wrong, "\n".join(wrong)
    assert {"right", "refused"} <= set(seen)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < GROWTH_KB


def is_never_right(found: str) -> bool:
    """What no change excuses."""
    return found == "hangs" or found.startswith("raw")
