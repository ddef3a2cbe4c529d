"""The story of a run as its status told it: phases, conditions and reasons in their order, times left out.

The same run must have the same story on whatever it runs. Left out is what nobody can promise: how many pods
were up at a moment, and the order in which two roles reach their phases. Status writes are merged when
several changes happen at once, so a state that a subject only passes through may never be shown to a watcher:
`differences` allows any line to be missing except the last of each subject.

`python -m tests.support.transcripts NAME` prints the story of a run that is yet to be made, from its
beginning to its end.
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

ENDED = ("Succeeded", "Failed")


class Transcript:
    """What one run told, by subject: the run, its conditions, its roles."""

    def __init__(self) -> None:
        self._told: dict[str, list[str]] = {}
        self.ended = False

    def see(self, run: TrainingRun) -> None:
        status = run.status
        if not status.phase:
            return
        self._note("run", status.phase, status.reason)
        for name, role in sorted(status.roles.items()):
            self._note(f"role {name}", role.phase, role.reason)
        for condition in status.conditions:
            self._note(f"condition {condition.type}", condition.status, condition.reason)
        self.ended = status.phase in ENDED

    def _note(self, subject: str, word: str, reason: str) -> None:
        told = self._told.setdefault(subject, [])
        line = f"{word} {reason}".strip()
        if not told or told[-1] != line:
            told.append(line)

    def __str__(self) -> str:
        lines = []
        for subject, told in self._told.items():
            lines.append(subject)
            lines += [f"  {line}" for line in told]
        return "\n".join(lines) + "\n"


def differences(expected: str, observed: str) -> list[str]:
    """Return what an observed transcript says that the expected one rules out; empty if it is the same story.

    Every subject must end in the same line, and may show the lines before it only in the expected order.
    """
    wanted, found = _subjects(expected), _subjects(observed)
    problems = [f"{subject}: missing" for subject in wanted.keys() - found.keys()]
    problems += [f"{subject}: not expected" for subject in found.keys() - wanted.keys()]
    for subject in wanted.keys() & found.keys():
        lines = iter(wanted[subject])
        for line in found[subject]:
            if line not in lines:  # this also consumes the expected lines up to the one that is equal
                problems.append(f"{subject}: {line!r} is not expected, or not at this point")
                break
        if found[subject][-1:] != wanted[subject][-1:]:
            problems.append(f"{subject}: must end with {wanted[subject][-1]!r}, not {found[subject][-1]!r}")
    return sorted(problems)


def _subjects(transcript: str) -> dict[str, list[str]]:
    """Return the lines of a transcript by their subject."""
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
    """Watch a run that is made inside the with block; when the block is left it must have ended."""
    transcript = Transcript()

    def changed(change: Change[TrainingRun]) -> None:
        if change.new is not None:
            transcript.see(change.new)

    with watch_in_thread(
        kubeconfig, TrainingRun, changed, namespace=namespace, fields=f"metadata.name={name}"
    ):
        yield transcript
        wait_for(lambda: transcript.ended, lambda: f"the run has not ended:\n{transcript}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.transcripts", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds until the run must have ended")
    options = parser.parse_args()
    with record(options.kubeconfig, options.namespace, options.name) as transcript:
        wait_for(lambda: transcript.ended, "the run has ended", options.patience)
    sys.stdout.write(str(transcript))


if __name__ == "__main__":
    main()
