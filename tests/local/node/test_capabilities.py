"""Tests for the capabilities of containers."""

import pytest

from argosy.local.node.capabilities import DEFAULT, NUMBERS, effective, numbers

CASES: dict[str, tuple[list[str], list[str], set[str]]] = {
    "nothing added or dropped: the default set": ([], [], set(DEFAULT)),
    "one added, with or without the prefix CAP_": (
        ["SYS_PTRACE", "cap_mknod"],
        [],
        {*DEFAULT, "SYS_PTRACE", "MKNOD"},
    ),
    "one of the default set dropped": ([], ["CHOWN"], set(DEFAULT) - {"CHOWN"}),
    "all dropped: none": ([], ["ALL"], set()),
    "all dropped, one added: only that one": (["KILL"], ["ALL"], {"KILL"}),
    "all added: every capability": (["ALL"], [], set(NUMBERS)),
    "all added, one dropped: every other one": (["ALL"], ["SYS_ADMIN"], set(NUMBERS) - {"SYS_ADMIN"}),
    "the same one added and dropped: dropped": (["SYS_PTRACE"], ["SYS_PTRACE"], set(DEFAULT)),
    "all added and all dropped: none": (["ALL"], ["ALL"], set()),
    "unknown name added: ignored": (["NO_SUCH"], [], set(DEFAULT)),
}


@pytest.mark.parametrize(("add", "drop", "want"), CASES.values(), ids=CASES)
def test_capabilities_of_a_container(add: list[str], drop: list[str], want: set[str]) -> None:
    assert set(effective(add, drop)) == want


def test_numbers_are_those_of_the_kernel() -> None:
    assert numbers(["CHOWN", "KILL", "SYS_ADMIN", "CHECKPOINT_RESTORE", "NO_SUCH"]) == {0, 5, 21, 40}
