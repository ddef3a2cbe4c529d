"""Every acceptance case of spot training has a named test; this table says where.

Cases of VMs and of agents are tested with these parts.
"""

import pytest

from tests.support.commands import REPOSITORY

SPOT = "tests/dialects/spot"
PLACES, CHECKPOINTS = f"{SPOT}/test_cases_places.py", f"{SPOT}/test_cases_checkpoints.py"
RECOVERY, LIFECYCLE = f"{SPOT}/test_cases_recovery.py", f"{SPOT}/test_cases_lifecycle.py"
KINDS, COMMANDS = "tests/kinds/test_spot.py", "tests/install/test_spot_commands.py"
JOURNEY = "tests/e2e/test_spot.py"

CASES: dict[int, tuple[str, str]] = {
    1: (KINDS, "test_case_1_"),
    2: (KINDS, "test_case_2_"),
    3: (PLACES, "test_case_3_"),
    4: (KINDS, "test_case_4_"),
    5: (PLACES, "test_case_5_"),
    6: (PLACES, "test_case_6_"),
    7: (PLACES, "test_case_7_"),
    8: (JOURNEY, "test_cases_8_"),
    9: (PLACES, "test_case_9_"),
    12: (PLACES, "test_case_12_"),
    13: (PLACES, "test_case_13_"),
    **{case: (CHECKPOINTS, f"test_case_{case}_") for case in range(17, 22)},
    **{case: (RECOVERY, f"test_case_{case}_") for case in range(22, 33)},
    33: (LIFECYCLE, "test_case_33_"),
    34: (LIFECYCLE, "test_case_34_"),
    35: (LIFECYCLE, "test_case_35_"),
    36: (LIFECYCLE, "test_case_36_"),
    44: (COMMANDS, "test_44_"),
    45: (PLACES, "test_case_45_"),
    46: (PLACES, "test_case_46_"),
    47: ("tests/e2e/test_spot_upstream.py", "test_case_47_cases_17_22_and_24_"),
    48: (LIFECYCLE, "test_case_48_"),
    51: (COMMANDS, "test_51_44_run_"),
}
OF_MACHINES = {10, 11, 14, 15, 16, 37, 49, 50}
OF_AGENTS = {38, 39, 40, 41, 42, 43}


@pytest.mark.parametrize("case", CASES)
def test_case_has_a_test_of_its_name(case: int) -> None:
    path, prefix = CASES[case]
    assert f"def {prefix}" in (REPOSITORY / path).read_text()


def test_every_case_is_listed() -> None:
    assert {*CASES, *OF_MACHINES, *OF_AGENTS} == set(range(1, 52))
