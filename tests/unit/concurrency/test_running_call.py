"""Whether a call still runs, as another thread sees it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from lakebed.concurrency.running_call import has_frame

DEPTH = 20


@pytest.fixture
def standing() -> Iterator[int]:
    """The number of a thread that stands still below functions of its own."""
    stands, goes_on = threading.Event(), threading.Event()

    def below(depth: int) -> None:
        if depth:
            below(depth - 1)
        stands.set()
        goes_on.wait(60)

    thread = threading.Thread(target=below, args=(DEPTH,))
    thread.start()
    assert stands.wait(60)
    assert thread.ident is not None
    yield thread.ident
    goes_on.set()
    thread.join(60)


@pytest.fixture
def frequent_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_a_frame_is_seen_on_the_stack_of_another_thread_until_the_thread_ends(standing: int) -> None:
    assert has_frame(standing, lambda frame: frame.f_code.co_name == "below" and frame.f_locals["depth"] == DEPTH)
    assert not has_frame(standing, lambda frame: frame.f_code.co_name == "above")
    ended = threading.Thread(target=str)
    ended.start()
    ended.join(60)
    assert not has_frame(ended.ident or 0, lambda frame: True)


@pytest.mark.usefixtures("frequent_collections")
def test_no_garbage_is_collected_while_a_stack_is_walked(standing: int) -> None:
    # a finalizer would let the thread go on, and its frames would be gone
    collected: list[bool] = []
    seen: list[int] = []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            collected.append(True)

    def looks(frame: FrameType) -> bool:
        Garbage()
        seen.append(len(collected))
        return False

    assert not has_frame(standing, looks)
    assert len(seen) > DEPTH
    assert set(seen) == {0}


def test_a_walk_leaves_the_collector_as_it_was(standing: int) -> None:
    assert gc.isenabled()
    has_frame(standing, lambda frame: False)
    assert gc.isenabled()
    gc.disable()
    try:
        has_frame(standing, lambda frame: False)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_in_a_walk_leaves_the_collector_on(standing: int) -> None:
    with pytest.raises(ZeroDivisionError):
        has_frame(standing, lambda frame: bool(1 // 0))
    assert gc.isenabled()
    assert has_frame(standing, lambda frame: True)
