"""`scripts/test`: failed tests are retried, budgets are warned about, a hard limit ends a stage."""

import sys
import textwrap
from pathlib import Path

import pytest

from scripts import stages
from scripts.stages import Command, Result, Stage

FAILS_ONCE = """
    class TestClass{n}:
        @pytest.mark.parametrize("word", ["--help me"])
        def test_{n}(self, word, request):
            marker = request.path.with_suffix(".{n}")
            if not marker.exists():
                marker.touch()
                raise AssertionError("the first time")
"""
PASSES_ONCE = """
    def test_{n}(request):
        request.path.with_suffix(".{n}").touch(exist_ok=False)
"""
FAILS_ONCE_AND_DEPENDS_ON_THE_TEST_BEFORE = """
    def test_{n}(request, record_property):
        record_property("sequential", "true")
        assert request.module.first_test_ran
        marker = request.path.with_suffix(".{n}")
        if not marker.exists():
            marker.touch()
            raise AssertionError("the first time")
"""
RUNS_FIRST = """
    first_test_ran = False
    def test_{n}(request):
        request.module.first_test_ran = True
"""
FAILS = "    def test_{n}(): assert False\n"
PASSES = "    def test_{n}(): pass\n"


class ScriptedClock(stages.Clock):
    """Returns the given times one after the other, and the last one from then on."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def now(self) -> float:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


@pytest.fixture(autouse=True)
def _empty_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts in half the time


def run(
    tmp_path: Path,
    *bodies: str,
    minutes: float = 10,
    clock: stages.Clock = stages.Clock(),
    alongside: Command | None = None,
) -> Result:
    """Run a stage whose only file of tests, `tests/test_made.py`, has these tests."""
    text = "".join(textwrap.dedent(body.format(n=number)) for number, body in enumerate(bodies))
    (tmp_path / "tests" / "test_made.py").write_text("import pytest, time\n" + text)
    return stages.run_stage(Stage("made", minutes, (Command(marks="not long"),), alongside), clock=clock)


def test_a_test_that_passes_when_run_again_is_flaky_and_does_not_fail_the_stage(tmp_path: Path) -> None:
    result = run(tmp_path, FAILS_ONCE, PASSES)
    assert result.failures == []
    assert result.flaky == ["tests/test_made.py::TestClass0::test_0[--help me]"]


def test_only_failed_tests_are_run_again(tmp_path: Path) -> None:
    assert run(tmp_path, FAILS_ONCE, PASSES_ONCE).failures == []


def test_a_sequential_test_is_run_again_with_its_whole_file(tmp_path: Path) -> None:
    result = run(tmp_path, RUNS_FIRST, FAILS_ONCE_AND_DEPENDS_ON_THE_TEST_BEFORE)
    assert (result.failures, result.flaky) == ([], ["tests/test_made.py"])


@pytest.mark.sequential
def test_the_marker_sequential_becomes_a_property_in_the_junit_file(request: pytest.FixtureRequest) -> None:
    assert ("sequential", "true") in request.node.user_properties


def test_a_test_that_fails_again_fails_the_stage(tmp_path: Path) -> None:
    result = run(tmp_path, FAILS_ONCE, FAILS)
    assert (result.failures, result.flaky) == (["pytest ended with 1"], [])


def test_more_failures_than_two_are_not_retried(tmp_path: Path) -> None:
    result = run(tmp_path, FAILS_ONCE, FAILS_ONCE, FAILS_ONCE)
    assert (result.failures, result.flaky) == (["pytest ended with 1"], [])


def test_a_stage_over_its_budget_passes_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, PASSES, minutes=1, clock=ScriptedClock(0, 0, 61))
    assert result.failures == []
    stages.report([result], [], "")
    assert "warning: stage made took longer than its budget of 1 min" in capsys.readouterr().err


def test_a_stage_within_its_budget_has_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    stages.report([Result(Stage("made", 1, ()), seconds=59)], [], "")
    printed = capsys.readouterr().err
    assert "59.0 s of 60 s  passed" in printed
    assert "warning" not in printed


def test_a_stage_is_ended_after_three_times_its_budget(tmp_path: Path) -> None:
    endless = "    def test_{n}(): time.sleep(600)\n"
    result = run(tmp_path, endless, minutes=1, clock=ScriptedClock(0, 179.9))
    assert result.failures == ["ended after 3 times its budget"]


def test_a_command_that_runs_alongside_fails_the_stage_and_its_output_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "lint"
    script.write_text(f"#!{sys.executable}\nprint('a finding')\nraise SystemExit(1)\n")
    script.chmod(0o755)
    result = run(tmp_path, PASSES, alongside=Command(("lint",)))
    assert result.failures == ["lint ended with 1"]
    assert "a finding" in capsys.readouterr().err


def test_junit_files_are_kept_and_the_slowest_files_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, PASSES)
    assert (tmp_path / "build" / "test-results" / "made-0.xml").exists()
    stages.report([result], [], "")
    assert " s tests/test_made.py" in capsys.readouterr().err


def test_with_unaffected_paths_only_a_command_does_nothing(tmp_path: Path) -> None:
    stage = Stage("made", 10, (Command(within=("tests/conformance/",)),))
    assert stages.run_stage(stage, ["tests/workload/"]).failures == []


@pytest.mark.parametrize(
    ("paths", "want"),
    [
        ([], ["tests/install/", "tests/local/node/"]),
        (["tests/install/", "tests/wire/"], ["tests/install/"]),
        (["tests/local/"], ["tests/local/node/"]),
        (["tests/local/node/test_a.py", "tests/local/test_b.py"], ["tests/local/node/test_a.py"]),
        (["tests/wire/"], []),
    ],
    ids=[
        "nothing is known of a change: all folders of the command",
        "a change affects one folder of the command: only that",
        "a change affects a folder around one of the command: that of the command",
        "a change affects a file in a folder of the command: only that file",
        "a change affects no folder of the command: nothing",
    ],
)
def test_a_command_searches_only_its_folders_that_a_change_affects(paths: list[str], want: list[str]) -> None:
    assert stages.search_paths(paths, ("tests/install/", "tests/local/node/")) == want


def test_the_budgets_of_the_default_stages_add_up_to_fourteen_minutes() -> None:
    assert sum(stage.minutes for stage in stages.STAGES if not stage.long) <= 14


def test_paths_of_folders_end_with_a_slash(tmp_path: Path) -> None:
    (tmp_path / "tests" / "a").mkdir()
    assert stages.parse_options(["tests/a", "tests/a/", "pytest.ini"]).paths == [
        "tests/a/",
        "tests/a/",
        "pytest.ini",
    ]


INVALID_OPTIONS = {
    "a path that does not exist": ["tests/b"],
    "paths and a revision": ["--since", "HEAD", "tests"],
}


@pytest.mark.parametrize("words", INVALID_OPTIONS.values(), ids=INVALID_OPTIONS.keys())
def test_invalid_options_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        stages.parse_options(words)
