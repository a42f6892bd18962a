"""One step ahead and one behind: the same items in the same order, errors where they belong, nothing left running."""

import threading
import time
from collections.abc import Iterator

import pytest

from milco_pyserini.encode.threads import ahead, behind, pool


def broken(count: int) -> Iterator[int]:
    """So many numbers, then an error."""
    yield from range(count)
    raise ValueError("no more")


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_items_and_their_order_stay(count: int) -> None:
    """Whatever is done in a thread, what comes out is what a plain loop gives."""
    with pool(patient=True) as threads:
        assert list(ahead(range(count), threads)) == list(range(count))
        assert list(behind(range(count), lambda item: item * item, threads)) == [item**2 for item in range(count)]


def test_the_next_item_is_made_while_one_is_used() -> None:
    """The second item is there although nobody has asked for it yet."""
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    with pool(patient=True) as threads:
        stream = ahead(items(), threads)
        assert next(stream) == 0
        assert made[1].wait(10) and not made[2].is_set()
        assert list(stream) == [1, 2]


def test_a_step_is_done_while_the_next_item_is_made() -> None:
    """The step of the first item ends although it waits for the second item to be made."""
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        second.set()
        yield 1

    with pool(patient=True) as threads:
        assert list(behind(items(), lambda item: second.wait(10), threads)) == [True, True]


def test_errors_come_where_the_result_would() -> None:
    """What was made before an error is used; then the error itself is raised."""
    with pool(patient=True) as threads:
        stream = behind(ahead(broken(2), threads), lambda item: item, threads)
        assert next(stream) == 0
        with pytest.raises(ValueError, match="no more"):
            next(stream)
    with pool(patient=True) as threads, pytest.raises(ZeroDivisionError):
        list(behind([1, 0, 1], lambda item: 1 / item, threads))


def test_leaving_waits_for_the_step_that_has_begun() -> None:
    """Interrupted, a step that writes a file is not cut off."""
    begun, ended = threading.Event(), threading.Event()

    def step(item: int) -> None:
        if item == 2:
            begun.set()
            time.sleep(0.1)
            ended.set()

    with pytest.raises(KeyboardInterrupt), pool(patient=True) as threads:
        next(behind([1, 2], step, threads))
        assert begun.wait(10)
        raise KeyboardInterrupt
    assert ended.is_set()
