import pytest

from argosy.kinds.messages import MAX_MESSAGE_CHARS, MAX_TEXT_CHARS, join_messages, unknown_name

COMPLAINTS = {
    "one": (["a: wrong"], "a: wrong"),
    "several, in their order": (["b: wrong", "a: wrong"], "b: wrong; a: wrong"),
    "one that was made twice": (["a: wrong", "b: wrong", "a: wrong"], "a: wrong; b: wrong"),
    "one without end": (["x" * 100_000], "x" * MAX_MESSAGE_CHARS + "…"),
}


@pytest.mark.parametrize(("complaints", "want"), COMPLAINTS.values(), ids=COMPLAINTS.keys())
def test_complaints_in_one_text(complaints: list[str], want: str) -> None:
    assert join_messages(complaints) == want


def test_more_than_a_status_has_room_for_are_counted() -> None:
    text = join_messages(f"spec.roles.r{number}: wrong" for number in range(5_000))
    assert text.startswith("spec.roles.r0: wrong; spec.roles.r1: wrong; ")
    assert len(text) < MAX_TEXT_CHARS + 100
    told = text.count("wrong")
    assert text.endswith(f"; and {5_000 - told} more")


UNKNOWN_NAMES = {
    "a mistyped name: the closest one is suggested": (
        "pytroch",
        ["tensorflow", "pytorch"],
        'unknown framework "pytroch"; did you mean "pytorch"? (known frameworks: pytorch, tensorflow)',
    ),
    "a name in other letter case: the known spelling is suggested": (
        "PYTORCH",
        ["pytorch"],
        'unknown framework "PYTORCH"; did you mean "pytorch"? (known frameworks: pytorch)',
    ),
    "a name like no other: only the known ones are listed": (
        "nope",
        ["pytorch"],
        'unknown framework "nope" (known frameworks: pytorch)',
    ),
    "no known names: nothing is suggested or listed": ("nope", [], 'unknown framework "nope"'),
}


@pytest.mark.parametrize(("name", "known", "want"), UNKNOWN_NAMES.values(), ids=UNKNOWN_NAMES.keys())
def test_an_unknown_name(name: str, known: list[str], want: str) -> None:
    assert unknown_name("framework", name, known) == want
