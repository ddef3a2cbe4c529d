"""`scripts/test` runs a few failed tests once more, and says so."""

import importlib.util
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "stages.py"
FAILS_ONCE = """
    from pathlib import Path
    def test_{n}():
        seen = Path(__file__).with_suffix(".{n}")
        if not seen.exists():
            seen.touch()
            raise AssertionError("the first time")
"""
FAILS = "    def test_{n}(): assert False\n"
PASSES = "    def test_{n}(): pass\n"


@pytest.fixture(scope="module")
def stages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def outcome(stages: ModuleType, tmp_path: Path, *bodies: str) -> tuple[str, list[str]]:
    """What failed, and which tests were unsteady."""
    text = "".join(textwrap.dedent(body.format(n=number)) for number, body in enumerate(bodies))
    (tmp_path / "test_made.py").write_text(text)
    command = stages.Command(("-m", "pytest", "-q", str(tmp_path)), is_pytest=True)
    unsteady: list[str] = []
    return stages._run_tests(command, time.monotonic() + 60, Counter(), unsteady), unsteady


def test_one_that_passes_the_second_time_is_named_and_does_not_fail_the_stage(
    stages: ModuleType, tmp_path: Path
) -> None:
    failure, unsteady = outcome(stages, tmp_path, FAILS_ONCE, PASSES)
    assert failure == ""
    assert [name.rpartition(".")[2] for name in unsteady] == ["test_0"]


def test_one_that_fails_again_fails_the_stage(stages: ModuleType, tmp_path: Path) -> None:
    assert outcome(stages, tmp_path, FAILS_ONCE, FAILS) == ("-m pytest ended with 1", [])


def test_many_failures_get_no_second_look(stages: ModuleType, tmp_path: Path) -> None:
    failure, unsteady = outcome(stages, tmp_path, *[FAILS_ONCE] * 4)
    assert (failure, unsteady) == ("-m pytest ended with 1", [])


def test_over_time_is_a_failure(stages: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text("import time\ndef test_slow(): time.sleep(60)\n")
    command = stages.Command(("-m", "pytest", "-q", str(tmp_path)), is_pytest=True)
    failure = stages._run_tests(command, time.monotonic() + 1, Counter(), [])
    assert failure == "over its budget by half: ended"
