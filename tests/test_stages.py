"""`scripts/test`: failed tests are run once more, budgets are warned about, a hard limit ends a stage."""

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
    class TestClass{n}:
        @pytest.mark.parametrize("word", ["--help me"])
        def test_{n}(self, word, request):
            seen = request.path.with_suffix(".{n}")
            if not seen.exists():
                seen.touch()
                raise AssertionError("the first time")
"""
PASSES_ONCE = """
    def test_{n}(request):
        request.path.with_suffix(".{n}").touch(exist_ok=False)
"""
GOES_ON_ONCE_FAILS = """
    def test_{n}(request, record_property):
        record_property("story", "true")
        assert request.module.told, "alone it knows nothing"
        seen = request.path.with_suffix(".{n}")
        if not seen.exists():
            seen.touch()
            raise AssertionError("the first time")
"""
TELLS = """
    told = False
    def test_{n}(request):
        request.module.told = True
"""
FAILS = "    def test_{n}(): assert False\n"
PASSES = "    def test_{n}(): pass\n"


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, as if its tests were in a folder of their own."""
    spec = importlib.util.spec_from_file_location("stages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look themselves up
    spec.loader.exec_module(module)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def outcome(stages: ModuleType, *bodies: str, seconds: float = 60) -> tuple[str, list[str]]:
    """What failed, and which tests were unsteady."""
    text = "".join(textwrap.dedent(body.format(n=number)) for number, body in enumerate(bodies))
    (stages.ROOT / "tests" / "test_made.py").write_text("import pytest, time\n" + text)
    command = stages.Command(("-m", "pytest", "-q", "-m", "not long"), is_pytest=True, where=("tests",))
    unsteady: list[str] = []
    deadline = time.monotonic() + seconds
    account = stages._results() / "made.xml"
    return stages._run_tests(command, account, deadline, Counter(), unsteady), unsteady


def test_one_that_passes_the_second_time_is_named_and_does_not_fail_the_stage(stages: ModuleType) -> None:
    failure, unsteady = outcome(stages, FAILS_ONCE, PASSES)
    assert failure == ""
    assert unsteady == ["tests/test_made.py::TestClass0::test_0[--help me]"]


def test_only_what_failed_is_run_again(stages: ModuleType) -> None:
    """The second test would not pass twice."""
    assert outcome(stages, FAILS_ONCE, PASSES_ONCE)[0] == ""


def test_one_that_goes_on_from_another_is_run_again_with_its_file(stages: ModuleType) -> None:
    assert outcome(stages, TELLS, GOES_ON_ONCE_FAILS) == ("", ["tests/test_made.py"])


@pytest.mark.story
def test_who_goes_on_from_another_says_so_in_the_account(request: pytest.FixtureRequest) -> None:
    assert ("story", "true") in request.node.user_properties


def test_one_that_fails_again_fails_the_stage(stages: ModuleType) -> None:
    assert outcome(stages, FAILS_ONCE, FAILS) == ("-m pytest ended with 1", [])


def test_many_failures_get_no_second_look(stages: ModuleType) -> None:
    assert outcome(stages, *[FAILS_ONCE] * 6) == ("-m pytest ended with 1", [])


def made(stages: ModuleType, minutes: float, body: str) -> object:
    """Return a stage of this budget with one file of tests, `tests/test_made.py`."""
    (stages.ROOT / "tests" / "test_made.py").write_text("import time\n" + body)
    command = stages.Command(("-m", "pytest", "-q"), is_pytest=True, where=("tests",))
    stage: object = stages.Stage("made", minutes, (command,))
    return stage


def test_a_stage_over_its_budget_passes_with_a_warning(
    stages: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "HARD_LIMIT", 1e6)
    result = stages._run(made(stages, 0.0001, "def test_a(): pass\n"), Counter())
    assert result.failures == []
    stages._report([result], Counter(), [], "")
    assert "warning: stage made took longer than its budget of 0.0001 min" in capsys.readouterr().err


def test_a_stage_within_its_budget_has_no_warning(
    stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    stages._report([stages.Result(made(stages, 1, ""), seconds=59)], Counter(), [], "")
    told = capsys.readouterr().err
    assert "59.0 s of 60 s  passed" in told
    assert "warning" not in told


def test_a_stage_is_ended_after_three_times_its_budget(stages: ModuleType) -> None:
    stage = made(stages, 1 / 60, "def test_a(): time.sleep(600)\n")
    result = stages._run(stage, Counter())
    assert result.failures == ["ended after 3 times its budget"]
    assert result.seconds >= 3


def test_results_are_kept_and_the_slowest_files_named(
    stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    result = stages._run(made(stages, 10, "def test_a(): pass\n"), Counter())
    assert (stages.ROOT / "build" / "test-results" / "made-0.xml").exists()
    stages._report([result], Counter(), [], "")
    assert " s tests/test_made.py" in capsys.readouterr().err
