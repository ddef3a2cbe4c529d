"""Tests that the step counter measures growth independently of the machine."""

import sys

from tests.support.step_counter import count_steps


def test_equal_calls_have_equal_counts() -> None:
    assert count_steps(lambda: sorted(str(number) for number in range(50))) == count_steps(
        lambda: sorted(str(number) for number in range(50))
    )


def test_count_of_a_nested_loop_is_quadratic() -> None:
    def pairs(count: int) -> None:
        for _ in range(count):
            [other for other in range(count) if other]

    assert count_steps(lambda: pairs(80)) > 12 * count_steps(lambda: pairs(20))


def test_earlier_trace_function_is_restored() -> None:
    before = sys.gettrace()
    count_steps(lambda: None)
    assert sys.gettrace() is before
