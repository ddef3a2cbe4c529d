"""`scripts/test`: the stages of the tests, their budgets, and an account of what ran and what did not.

A stage over its budget passes with a warning: how long tests take depends on the machine. Only a stage that
takes three times its budget is ended and fails. The results of each command are kept as JUnit XML in
`build/test-results`; the summary names the slowest files. What cannot run on this machine (no root, no Go)
is skipped and listed with the reason at the end; with ARGOSY_REQUIRE_ALL=1 it fails instead. Building a real
Kubernetes and installing packages, once, are no stages: they have no budget.

A few failed tests are run once more, one at a time. What passes then was unsteady: the stage has passed, and
the summary names the test (docs/decisions/006).
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"
HARD_LIMIT = 3
"""A stage is ended after this many times its budget."""
SLOWEST = 10
"""So many of the slowest files are named in the summary."""
CLUSTER, LONG = "cluster", "long"
FAILED, NO_TESTS = 1, 5
"""pytest's exit codes when tests failed, and when nothing matches."""
SECOND_LOOKS = 5
"""So many failed tests of a command get one; more are no accident."""


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    is_pytest: bool = False
    where: tuple[str, ...] = ()
    """In which files pytest looks for tests; in all by default."""
    spread: tuple[str, ...] = ()
    """How pytest deals the tests out to processes."""


@dataclass(frozen=True)
class Stage:
    name: str
    minutes: float
    commands: tuple[Command, ...]
    long: bool = False


def tests(marks: str, *spread: str) -> Command:
    return Command(("-m", "pytest", "-q", "-m", marks), is_pytest=True, spread=spread)


def conformance(marks: str, *spread: str) -> Command:
    """The suite that also runs on the local control plane, on a real cluster."""
    words = ("-m", "pytest", "-q", "--on", "cluster", "-m", marks)
    return Command(words, is_pytest=True, where=("tests/conformance",), spread=spread)


PARALLEL = ("-n", str(max(2, min(8, os.cpu_count() or 2))), "--dist", "worksteal")
"""As many processes as cores. More are quicker by a quarter, and their waits run out more often."""
PAIRWISE = ("-n", "2", "--dist", "loadfile")
"""Two control planes at a time: they wait more than they work."""
ON_ONE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three files at a time on one cluster; those that hurt it come last."""

STAGES = (
    Stage(
        "unit",
        9,
        (
            Command(("scripts/lint",)),
            tests("not root and not e2e and not cluster and not long", *PARALLEL),
            tests("root and not e2e and not cluster and not long"),
        ),
    ),
    Stage("local", 11, (tests("e2e and not long", *PAIRWISE),)),
    Stage(CLUSTER, 17, (tests("cluster and not long"), conformance("not long", *ON_ONE))),
    Stage(LONG, 60, (tests("long"), conformance("long", *ON_ONE), Command(("scripts/bench",))), long=True),
)


@dataclass
class Result:
    stage: Stage
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    """Tests that failed once and passed when they were run again."""

    accounts: list[Path] = field(default_factory=list)
    """The JUnit XML of its commands."""

    @property
    def over_budget(self) -> bool:
        return self.seconds > self.stage.minutes * 60


def main() -> int:
    """Run what was asked for; the exit code is 0 when all of it passed."""
    options = _options()
    chosen = [stage for stage in STAGES if options.stage in (None, stage.name)]
    wanted = [stage for stage in chosen if options.long or not stage.long or options.stage]
    left_out = [f"stage {stage.name}: only with --long" for stage in chosen if stage not in wanted]
    problem = _build("apiserver", "the judge, a real kube-apiserver")
    if CLUSTER in [stage.name for stage in wanted] and os.geteuid() == 0:
        problem = problem or _build("cluster", "a real cluster")
    if LONG in [stage.name for stage in wanted] and os.geteuid() == 0:
        problem = problem or _build("cluster --version 1.35", "a real cluster of the version before")
    if REQUIRE_ALL:
        _install_packages()
        _install_mpi()
        _install_frameworks()
    skipped: Counter[str] = Counter()
    results = [_run(stage, skipped) for stage in wanted] if not problem or not REQUIRE_ALL else []
    _report(results, skipped, left_out, problem)
    return 1 if (problem and REQUIRE_ALL) or any(result.failures for result in results) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/test", description="Run the tests.")
    parser.add_argument("--long", action="store_true", help="also what takes long, the benchmarks among it")
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], help="one stage only")
    return parser.parse_args()


def _build(what: str, meaning: str) -> str:
    """Make the programs of a real Kubernetes, if they are not there; what is wrong, if they cannot be had."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.support.kubernetes", "build", *what.split()]
    built = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    _say(f"{meaning}: prepared in {time.monotonic() - began:.1f} s")
    return "" if built.returncode == 0 else built.stderr.strip().splitlines()[-1]


PACKAGES = {
    "python3-torch": ("/usr/bin/python3", "-c", "import torch"),
    "openmpi-bin": ("/usr/bin/mpirun", "--version"),
    "openssh-server": ("/usr/bin/test", "-x", "/usr/sbin/sshd"),
    "python3-mpi4py": ("/usr/bin/python3", "-c", "import mpi4py"),
    "nftables": ("/usr/sbin/nft", "--version"),
    "iptables": ("/usr/sbin/iptables", "--version"),
    "passt": ("/usr/bin/pasta", "--version"),
    **{
        name: ("/usr/bin/dpkg", "-s", name)
        for name in (
            *("cmake", "g++", "libopenmpi-dev", "libtorch-dev", "make", "pybind11-dev", "python3-dev"),
            *("python3-cloudpickle", "python3-packaging", "python3-psutil", "python3-venv", "python3-yaml"),
        )
    },
}
"""Debian's light PyTorch, Open MPI and sshd for the examples, pods' ways to the world outside, and what
Horovod is built with; each with a sign of it."""


def _install_packages() -> None:
    """Only where everything is required, for they are system-wide."""
    began = time.monotonic()
    if missing := [package for package, sign in PACKAGES.items() if not _works(sign)]:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", "-qq", *words], env=quiet, stdout=subprocess.DEVNULL, check=False)
    _say(f"packages of the system: prepared in {time.monotonic() - began:.1f} s")


def _install_mpi() -> None:
    """Open MPI 5 and Intel MPI from PyPI, in environments of their own: 140 MB to fetch."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "tests.support.mpi_venvs"], cwd=ROOT, check=False)
    _say(f"implementations of MPI: prepared in {time.monotonic() - began:.1f} s")


def _install_frameworks() -> None:
    """What the examples name in their requirements, each in an environment of its own."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "tests.support.framework_venvs"], cwd=ROOT, check=False)
    _say(f"frameworks of the examples: prepared in {time.monotonic() - began:.1f} s")


def _works(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _run(stage: Stage, skipped: Counter[str]) -> Result:
    _say(f"\n== stage {stage.name}, budget {stage.minutes:g} min")
    result = Result(stage)
    began = time.monotonic()
    deadline = began + stage.minutes * 60 * HARD_LIMIT
    for number, command in enumerate(stage.commands):
        if command.is_pytest:
            account = _results() / f"{stage.name}-{number}.xml"
            result.accounts.append(account)
            failure = _run_tests(command, account, deadline, skipped, result.unsteady)
        else:
            words = [str(ROOT / command.arguments[0]), *command.arguments[1:]]
            failure = _verdict(command, _call(words, deadline))
        if failure:
            result.failures.append(failure)
    result.seconds = time.monotonic() - began
    return result


def _results() -> Path:
    return ROOT / "build" / "test-results"


def _run_tests(
    command: Command, account: Path, deadline: float, skipped: Counter[str], unsteady: list[str]
) -> str:
    """Run tests, a few failed ones twice; the result says what failed, and is empty when nothing did.

    `account` is where pytest writes its JUnit XML; that of a second run goes beside it.
    """
    account.parent.mkdir(parents=True, exist_ok=True)
    account.unlink(missing_ok=True)
    words = [sys.executable, *command.arguments]
    code = _call([*words, f"--junitxml={account}", *command.spread, *command.where], deadline)
    if account.exists():
        skipped.update(_skips(account))
    if code == NO_TESTS:
        return ""
    if code == FAILED and 0 < len(failed := _failed(account)) <= SECOND_LOOKS:
        _say(f"once more, one at a time: {' '.join(failed)}")
        code = _call([*words, f"--junitxml={account.with_suffix('.again.xml')}", *failed], deadline)
        if code == 0:
            unsteady.extend(failed)
    return _verdict(command, code)


def _verdict(command: Command, code: int | None) -> str:
    if code is None:
        return f"ended after {HARD_LIMIT} times its budget"
    return "" if code == 0 else f"{' '.join(command.arguments[:2])} ended with {code}"


def _call(words: list[str], deadline: float) -> int | None:
    """The exit code; none if the command was still running at the deadline, and was ended."""
    process = subprocess.Popen(words, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        _end(process)
        return None
    except KeyboardInterrupt:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started: first politely, so that fixtures clean up."""
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


def _skips(account: Path) -> list[str]:
    root = ElementTree.parse(account).getroot()  # noqa: S314 - pytest wrote it a moment ago
    return [skip.get("message", "no reason given") for skip in root.iter("skipped")]


def _failed(account: Path) -> list[str]:
    """The failed tests, as pytest takes them on its command line; each once, though its end may fail too.

    One that goes on from the tests before it (its marker is `story`) proves nothing alone: its file stands
    for it.
    """
    root = ElementTree.parse(account).getroot()  # noqa: S314 - pytest wrote it a moment ago
    names = [
        _node_id(
            case.get("classname", "").split("."),
            case.get("name", ""),
            whole_file=case.find("properties/property[@name='story']") is not None,
        )
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return list(dict.fromkeys(names))


def _slowest(accounts: list[Path]) -> list[tuple[float, str]]:
    """Return the files whose tests took longest, with their seconds, longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for account in filter(Path.exists, accounts):
        root = ElementTree.parse(account).getroot()  # noqa: S314 - pytest wrote it a moment ago
        for case in root.iter("testcase"):
            file = _node_id(case.get("classname", "").split("."), "", whole_file=True)
            seconds[file] += float(case.get("time", 0))
    return sorted(((taken, file) for file, taken in seconds.items()), reverse=True)[:SLOWEST]


def _node_id(parts: list[str], name: str, *, whole_file: bool) -> str:
    """From `tests.engine.test_cache.TestPut` and a function: the file is as far as there is one."""
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (ROOT / file).exists():
            return file if whole_file else "::".join([file, *parts[length:], name])
    return name


def _report(results: list[Result], skipped: Counter[str], left_out: list[str], problem: str) -> None:
    _say("\n== summary")
    for result in results:
        verdict = "; ".join(result.failures) or "passed"
        _say(f"{result.stage.name:8} {result.seconds:6.1f} s of {result.stage.minutes * 60:.0f} s  {verdict}")
        if result.over_budget:
            budget = f"{result.stage.minutes:g} min"
            _say(f"warning: stage {result.stage.name} took longer than its budget of {budget}")
        for test in result.unsteady:
            _say(f"unsteady: {test} failed, and passed when it was run again")
    for seconds, file in _slowest([account for result in results for account in result.accounts]):
        _say(f"slow: {seconds:6.1f} s {file}")
    if problem:
        _say(f"not run: tests against a real Kubernetes: {problem}")
    for reason in left_out:
        _say(f"not run: {reason}")
    for reason, count in sorted(skipped.items()):
        _say(f"not run: {count} tests: {reason}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
