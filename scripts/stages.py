"""`scripts/test`: runs the tests in stages with time budgets and reports what ran and what did not.

A stage over its budget passes with a warning, because the time depends on the machine; one that takes three
times its budget is ended and fails. pytest's results are kept as JUnit XML in `build/test-results`, and the
summary names the slowest files. Tests that cannot run on this machine (no root, no Go) are skipped and listed
with the reason; with ARGOSY_REQUIRE_ALL=1 they fail instead.

Up to two failed tests of a stage are run again, one at a time. A test that passes then is flaky: it does not
fail the stage, and the summary names it (docs/decisions/006).
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts import affected, junit, prerequisites

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"
HARD_LIMIT = 3
"""A stage is ended after this many times its budget."""
MAX_RETRIES = 2
"""How many failed tests of a stage are run again; more are no accident."""
SLOWEST_FILES = 10
CLUSTER, LONG = "cluster", "long"
TESTS_FAILED, NO_TESTS = 1, 5
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Command:
    """A program, or pytest with a marker expression."""

    words: tuple[str, ...] = ()
    marks: str = ""
    options: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    """How pytest-xdist distributes the tests."""
    within: tuple[str, ...] = ("tests/",)
    """The folders and files that pytest searches for tests. Importing all tests takes each of its processes
    several seconds."""


@dataclass(frozen=True)
class Stage:
    name: str
    minutes: float
    commands: tuple[Command, ...]
    alongside: Command | None = None
    """A command that runs while the others do; its output is printed after theirs."""
    long: bool = False


PER_CORE = ("-n", str(max(5, min(8, os.cpu_count() or 2))), "--dist", "worksteal")
"""At least five: tests wait for servers and processes for more than half of their time."""
TWO_FILES = ("-n", "2", "--dist", "loadfile")
FOUR_FILES = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
"""Four files at a time: tests with control planes and clusters wait more than they compute. Without
reordering, the conformance files that need the cluster for themselves stay last."""


CONFORMANCE = "tests/conformance/"
WITHIN: Mapping[str, tuple[str, ...]] = {
    "root": (
        *("tests/agent/", "tests/checkpoint/", "tests/harness/cluster/", "tests/helper/"),
        *("tests/local/node/", "tests/local/test_state.py"),
    ),
    "e2e": ("tests/e2e/", "tests/local/node/", CONFORMANCE),
    "cluster": ("tests/install/", "tests/reliability/", "tests/control_planes/", "tests/harness/cluster/"),
}
"""The folders of the tests with these markers, those that take longest first."""


def conformance_on_cluster(marks: str) -> Command:
    return Command(marks=marks, options=("--on", "cluster"), workers=FOUR_FILES, within=(CONFORMANCE,))


STAGES = (
    Stage(
        "unit",
        5,
        (
            Command(marks="not root and not e2e and not cluster and not long", workers=PER_CORE),
            Command(marks="root and not e2e and not cluster and not long", within=WITHIN["root"]),
        ),
        alongside=Command(("scripts/lint",)),
    ),
    Stage("local", 4, (Command(marks="e2e and not long", workers=FOUR_FILES, within=WITHIN["e2e"]),)),
    Stage(
        CLUSTER,
        5,
        (
            Command(marks="cluster and not long", workers=FOUR_FILES, within=WITHIN["cluster"]),
            conformance_on_cluster("not long"),
        ),
    ),
    Stage(
        LONG,
        75,
        (
            Command(marks="long and not root", workers=TWO_FILES),
            Command(marks="long and root"),
            conformance_on_cluster("long"),
            Command(("scripts/bench",)),
        ),
        long=True,
    ),
)


@dataclass
class Result:
    stage: Stage
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    """Tests that failed and passed when they were run again."""
    reports: list[Path] = field(default_factory=list)
    """The JUnit XML of its commands."""
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def over_budget(self) -> bool:
        return self.seconds > self.stage.minutes * 60


class Clock:
    """Real time; tests replace it."""

    def now(self) -> float:
        return time.monotonic()


def main() -> int:
    """Run the chosen stages; the exit code is 0 if all of them passed."""
    options = parse_options(sys.argv[1:])
    # Without cached bytecode every process that a test starts compiles all modules that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    selected = [stage for stage in STAGES if options.stage in (None, stage.name)]
    stages = [stage for stage in selected if options.long or not stage.long or options.stage]
    not_run = [f"stage {stage.name}: only with --long" for stage in selected if stage not in stages]
    paths: list[str] = options.paths
    if options.since:
        changed = affected.changed_files(options.since, ROOT)
        paths = affected.affected_tests(changed, ROOT, affected.package_imports())
        not_run.append(f"tests outside of {' '.join(paths)}: not affected" if paths else "")
    problem = _prepare({stage.name for stage in stages})
    results = [run_stage(stage, paths) for stage in stages] if not problem or not REQUIRE_ALL else []
    report(results, [line for line in not_run if line], problem)
    return 1 if (problem and REQUIRE_ALL) or any(result.failures for result in results) else 0


def parse_options(words: Sequence[str]) -> argparse.Namespace:
    """Return the options; `paths` are those that exist, and folders end with a slash."""
    parser = argparse.ArgumentParser(prog="scripts/test", description="Run the tests.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="folders and files of tests; default: all")
    parser.add_argument("--long", action="store_true", help="also what takes long, with the benchmarks")
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], help="one stage only")
    parser.add_argument(
        "--since", metavar="REVISION", help="only tests that changes since a Git revision affect"
    )
    options = parser.parse_args(words)
    if options.since and options.paths:
        parser.error("argument --since: not allowed with PATH")
    if unknown := [path for path in options.paths if not (ROOT / path).exists()]:
        parser.error(f"no such file or folder: {', '.join(unknown)}")
    options.paths = [f"{path.rstrip('/')}/" if (ROOT / path).is_dir() else path for path in options.paths]
    return options


def _prepare(stages: set[str]) -> str:
    """Build and install what the stages need; returns why a real Kubernetes is missing, if it is."""
    problem = prerequisites.build_kubernetes("apiserver")
    prerequisites.build_kubernetes("s3")  # Tests that need it say so themselves.
    if stages & {CLUSTER, LONG} and os.geteuid() == 0:
        problem = problem or prerequisites.build_kubernetes("cluster")
    if LONG in stages and os.geteuid() == 0:
        problem = problem or prerequisites.build_kubernetes("cluster", "--version", "1.35")
    if REQUIRE_ALL:
        prerequisites.install_packages()
        prerequisites.install_frameworks()
        prerequisites.unpack_criu()
    return problem


def run_stage(stage: Stage, paths: Sequence[str] = (), clock: Clock = Clock()) -> Result:
    """Run the commands of a stage one after the other, on the given folders and files of tests or on all."""
    _print(f"\n== stage {stage.name}, budget {stage.minutes:g} min")
    result = Result(stage)
    started = clock.now()
    deadline = started + stage.minutes * 60 * HARD_LIMIT
    with _alongside(stage, result, deadline, clock):
        for number, command in enumerate(stage.commands):
            if command.words:
                failure = _verdict(command, _call(_program(command), deadline - clock.now()))
            else:
                file = ROOT / "build" / "test-results" / f"{stage.name}-{number}.xml"
                failure = run_tests(command, file, result, deadline, paths, clock)
            if failure:
                result.failures.append(failure)
    result.seconds = clock.now() - started
    return result


@contextmanager
def _alongside(stage: Stage, result: Result, deadline: float, clock: Clock) -> Iterator[None]:
    """Run the stage's concurrent command during the block, and print its output after it."""
    if stage.alongside is None:
        yield
        return
    log = ROOT / "build" / "test-results" / f"{stage.name}-alongside.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        process = _start(_program(stage.alongside), output.fileno())
        yield
        code = _wait(process, deadline - clock.now())
    _print(log.read_text().rstrip())
    if failure := _verdict(stage.alongside, code):
        result.failures.append(failure)


def run_tests(
    command: Command, file: Path, result: Result, deadline: float, paths: Sequence[str], clock: Clock
) -> str:
    """Run tests, and a few failed ones again; returns what failed, or nothing.

    pytest writes its JUnit XML to `file`, and that of the second run next to it.
    """
    where = search_paths(paths, command.within)
    if not where:
        return ""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "-q", *command.options, "-m", command.marks]
    code = _call([*words, f"--junitxml={file}", *command.workers, *where], deadline - clock.now())
    if file.exists():
        result.reports.append(file)
        result.skipped.update(junit.skip_reasons(file))
    if code == NO_TESTS:
        return ""
    allowed = MAX_RETRIES - len(result.flaky)
    if code == TESTS_FAILED and 0 < len(failed := junit.failed_tests(file, ROOT)) <= allowed:
        _print(f"again, one at a time: {' '.join(failed)}")
        code = _call(
            [*words, f"--junitxml={file.with_suffix('.retry.xml')}", *failed], deadline - clock.now()
        )
        if code == 0:
            result.flaky.extend(failed)
    return _verdict(command, code)


def search_paths(paths: Sequence[str], folders: Sequence[str]) -> list[str]:
    """The parts of a command's folders that these paths select; all of them without paths.

    The path of a folder ends with a slash.
    """
    pairs = [(path, folder) for path in paths or folders for folder in folders]
    chosen = [
        max(pair, key=len) for pair in pairs if pair[0].startswith(pair[1]) or pair[1].startswith(pair[0])
    ]
    return list(dict.fromkeys(chosen))


def _program(command: Command) -> list[str]:
    return [str(ROOT / command.words[0]), *command.words[1:]]


def _verdict(command: Command, code: int | None) -> str:
    if code is None:
        return f"ended after {HARD_LIMIT} times its budget"
    return "" if code == 0 else f"{' '.join(command.words) or 'pytest'} ended with {code}"


def _call(words: Sequence[str], seconds: float) -> int | None:
    """The exit code of a command, or None if it was still running at the deadline and was ended."""
    return _wait(_start(words), seconds)


def _start(words: Sequence[str], output: int | None = None) -> subprocess.Popen[bytes]:
    stderr = subprocess.STDOUT if output is not None else None
    return subprocess.Popen(words, cwd=ROOT, start_new_session=True, stdout=output, stderr=stderr)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        _end(process)
        return None
    except KeyboardInterrupt:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children, at first by SIGINT so that fixtures can clean up."""
    for number, patience in ((signal.SIGINT, 20), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        else:
            return


def report(results: Sequence[Result], not_run: Sequence[str], problem: str) -> None:
    """Print the summary: each stage, flaky tests, the slowest files, and what did not run."""
    _print("\n== summary")
    skipped: Counter[str] = Counter()
    for result in results:
        verdict = "; ".join(result.failures) or "passed"
        name, minutes = result.stage.name, result.stage.minutes
        _print(f"{name:8} {result.seconds:6.1f} s of {minutes * 60:.0f} s  {verdict}")
        if result.over_budget:
            _print(f"warning: stage {name} took longer than its budget of {minutes:g} min")
        for test in result.flaky:
            _print(f"flaky: {test} failed, and passed when it was run again")
        skipped.update(result.skipped)
    reports = [file for result in results for file in result.reports]
    for seconds, file in junit.slowest_files(reports, ROOT, SLOWEST_FILES):
        _print(f"slow: {seconds:6.1f} s {file}")
    if problem:
        _print(f"not run: tests against a real Kubernetes: {problem}")
    for line in not_run:
        _print(f"not run: {line}")
    for reason, count in sorted(skipped.items()):
        _print(f"not run: {count} tests: {reason}")


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
