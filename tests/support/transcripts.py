"""Records the phases, conditions and reasons of a TrainingRun in their order, without times.

The same run must have the same transcript on every target. A transcript leaves out what cannot be the same:
pod counts, and the order in which two roles reach their phases. Status writes are merged when several
changes happen at once, so a watch may never show a state that lasts only for a moment: `differences` allows
any line to be missing except the last of each subject.

`python -m tests.support.transcripts NAME` prints the transcript of a run that is created after it starts.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.engine.cache import Change
from argosy.kinds.trainingrun import TrainingRun
from tests.support.waiting import wait_for
from tests.support.watch_thread import watch_in_thread

FINISHED = ("Succeeded", "Failed")


class Transcript:
    """The states of one run by subject: the run, each condition, each role."""

    def __init__(self) -> None:
        self._states: dict[str, list[str]] = {}
        self.finished = False

    def add(self, run: TrainingRun) -> None:
        status = run.status
        if not status.phase:
            return
        self._note("run", status.phase, status.reason)
        for name, role in sorted(status.roles.items()):
            self._note(f"role {name}", role.phase, role.reason)
        for condition in status.conditions:
            self._note(f"condition {condition.type}", condition.status, condition.reason)
        self.finished = status.phase in FINISHED

    def _note(self, subject: str, word: str, reason: str) -> None:
        states = self._states.setdefault(subject, [])
        line = f"{word} {reason}".strip()
        if not states or states[-1] != line:
            states.append(line)

    def __str__(self) -> str:
        lines = []
        for subject, states in self._states.items():
            lines.append(subject)
            lines += [f"  {line}" for line in states]
        return "\n".join(lines) + "\n"


def differences(expected: str, observed: str) -> list[str]:
    """How an observed transcript contradicts the expected one; empty if it does not.

    Every subject must end in the same line, and may show the lines before it only in the expected order.
    """
    wanted, actual = _subjects(expected), _subjects(observed)
    problems = [f"{subject}: missing" for subject in wanted.keys() - actual.keys()]
    problems += [f"{subject}: not expected" for subject in actual.keys() - wanted.keys()]
    for subject in wanted.keys() & actual.keys():
        lines = iter(wanted[subject])
        for line in actual[subject]:
            if line not in lines:  # consumes the expected lines up to the equal one
                problems.append(f"{subject}: {line!r} is not expected, or not at this point")
                break
        if actual[subject][-1:] != wanted[subject][-1:]:
            problems.append(f"{subject}: must end with {wanted[subject][-1]!r}, not {actual[subject][-1]!r}")
    return sorted(problems)


def _subjects(transcript: str) -> dict[str, list[str]]:
    """The lines of a transcript by subject."""
    subjects: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in transcript.splitlines():
        if line.startswith("  "):
            lines.append(line.strip())
        else:
            lines = subjects.setdefault(line, [])
    return subjects


@contextmanager
def record(kubeconfig: Path, namespace: str, name: str) -> Iterator[Transcript]:
    """Record a run that is created inside the block; waits at its end until the run has finished."""
    transcript = Transcript()

    def changed(change: Change[TrainingRun]) -> None:
        if change.new is not None:
            transcript.add(change.new)

    with watch_in_thread(
        kubeconfig, TrainingRun, changed, namespace=namespace, fields=f"metadata.name={name}"
    ):
        yield transcript
        wait_for(lambda: transcript.finished, lambda: f"the run has not finished:\n{transcript}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.transcripts", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds until the run must have finished"
    )
    options = parser.parse_args()
    with record(options.kubeconfig, options.namespace, options.name) as transcript:
        wait_for(lambda: transcript.finished, "the run finishes", options.timeout)
    sys.stdout.write(str(transcript))


if __name__ == "__main__":
    main()
