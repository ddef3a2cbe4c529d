"""Steps count what grows, and nothing that depends on the machine."""

import sys

from tests.support.step_counter import count_steps


def test_the_same_call_has_the_same_number_of_steps() -> None:
    assert count_steps(lambda: sorted(str(number) for number in range(50))) == count_steps(
        lambda: sorted(str(number) for number in range(50))
    )


def test_a_loop_inside_a_loop_grows_with_the_square() -> None:
    def pairs(count: int) -> None:
        for _ in range(count):
            [other for other in range(count) if other]

    assert count_steps(lambda: pairs(80)) > 12 * count_steps(lambda: pairs(20))


def test_tracing_is_as_before_afterwards() -> None:
    before = sys.gettrace()
    count_steps(lambda: None)
    assert sys.gettrace() is before
