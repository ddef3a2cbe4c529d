import pytest

from argosy.kinds.text import MAX_MESSAGE_CHARS, MAX_TEXT_CHARS, join_messages, join_names, unknown_name

MESSAGES = {
    "one message: unchanged": (["a: wrong"], "a: wrong"),
    "several messages: joined in their order": (["b: wrong", "a: wrong"], "b: wrong; a: wrong"),
    "duplicate message: once": (["a: wrong", "b: wrong", "a: wrong"], "a: wrong; b: wrong"),
    "very long message: cut": (["x" * 100_000], "x" * MAX_MESSAGE_CHARS + "…"),
}


@pytest.mark.parametrize(("messages", "want"), MESSAGES.values(), ids=MESSAGES.keys())
def test_join_messages(messages: list[str], want: str) -> None:
    assert join_messages(messages) == want


def test_join_messages_counts_the_messages_beyond_the_limit() -> None:
    text = join_messages(f"spec.roles.r{number}: wrong" for number in range(5_000))
    assert text.startswith("spec.roles.r0: wrong; spec.roles.r1: wrong; ")
    assert len(text) < MAX_TEXT_CHARS + 100
    joined = text.count("wrong")
    assert text.endswith(f"; and {5_000 - joined} more")


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


@pytest.mark.parametrize(("name", "names", "want"), UNKNOWN_NAMES.values(), ids=UNKNOWN_NAMES.keys())
def test_unknown_name(name: str, names: list[str], want: str) -> None:
    assert unknown_name("framework", name, names) == want


LISTS = {
    "": [],
    "a": ["a"],
    "a and b": ["a", "b"],
    "a, b and c": ["a", "b", "c"],
    "a, b, c and 2 more": ["a", "b", "c", "d", "e"],
}


@pytest.mark.parametrize(("want", "names"), LISTS.items())
def test_join_names(want: str, names: list[str]) -> None:
    assert join_names(names) == want
