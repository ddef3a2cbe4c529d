"""Every acceptance case of et-operator's specification has a named test; this table says where.

Commands of its README (49 to 52) are tested as far as they need no node, and on a real cluster besides.
"""

import pytest

from tests.support.commands import REPOSITORY

ET = "tests/dialects/et"
STARTUP, END = f"{ET}/test_cases_startup.py", f"{ET}/test_cases_end.py"
WORKER_LOSS, RELEASE = f"{ET}/test_cases_worker_loss.py", f"{ET}/test_cases_release.py"
SCALE_OUT, SCALE_IN = f"{ET}/test_cases_scale_out.py", f"{ET}/test_cases_scale_in.py"
SCALERS, CRASHES = f"{ET}/test_cases_scalers.py", f"{ET}/test_cases_crashes.py"
TORCHRUN, METRICS = "tests/operator/test_torchrun.py", "tests/operator/test_job_metrics.py"
COMMANDS, ON_CLUSTER = "tests/install/test_et_commands.py", "tests/install/test_et_on_cluster.py"
REMOTE = "tests/helper/test_remote_ends.py"

CASES: dict[int, str] = {
    **dict.fromkeys(range(1, 13), STARTUP),
    **dict.fromkeys(range(13, 21), END),
    **dict.fromkeys(range(21, 25), WORKER_LOSS),
    **dict.fromkeys(range(25, 31), SCALE_OUT),
    **dict.fromkeys(range(31, 39), SCALE_IN),
    **dict.fromkeys(range(39, 44), SCALERS),
    44: CRASHES,
    45: RELEASE,
    46: TORCHRUN,
    47: SCALERS,
    48: METRICS,
    53: SCALERS,
    54: REMOTE,
}
OF_COMMANDS = {
    49: (COMMANDS, ON_CLUSTER),
    50: (COMMANDS, ON_CLUSTER),
    51: (COMMANDS, ON_CLUSTER),
    52: (COMMANDS,),
}


@pytest.mark.parametrize("case", CASES)
def test_case_has_a_test_of_its_name(case: int) -> None:
    assert f"def test_case_{case}_" in (REPOSITORY / CASES[case]).read_text()


@pytest.mark.parametrize("case", OF_COMMANDS)
def test_case_of_a_command_has_a_test_of_its_name(case: int) -> None:
    for path in OF_COMMANDS[case]:
        assert f"def test_{case}_" in (REPOSITORY / path).read_text()


def test_every_case_is_listed() -> None:
    assert sorted([*CASES, *OF_COMMANDS]) == list(range(1, 55))
