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
    return stages._run_tests(command, time.monotonic() + seconds, Counter(), unsteady), unsteady


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


def test_over_time_is_a_failure(stages: ModuleType) -> None:
    slow = "    def test_{n}(): time.sleep(60)\n"
    assert outcome(stages, slow, seconds=1)[0] == "over its budget by half: ended"
