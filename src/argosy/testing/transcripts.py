"""The story of a run as its status told it: phases, conditions and reasons in their order, times left out.

The same run must have the same story on whatever it runs. Left out is what nobody can promise: how many pods
were up at a moment, and the order in which two roles reach their phases. What is over sooner than anybody
looks is not told either: a kubelet looks at its containers once a second.

`python -m argosy.testing.transcripts NAME` prints the story of a run that is yet to be made, from its
beginning to its end.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.engine.cache import Change
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.badday import wait_for
from argosy.testing.lookout import watching

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


@contextmanager
def transcribing(kubeconfig: Path, namespace: str, name: str) -> Iterator[Transcript]:
    """Watch a run that is made inside the with block; when the block is left it must have ended."""
    transcript = Transcript()

    def changed(change: Change[TrainingRun]) -> None:
        if change.new is not None:
            transcript.see(change.new)

    with watching(kubeconfig, TrainingRun, changed, namespace=namespace, fields=f"metadata.name={name}"):
        yield transcript
        wait_for(lambda: transcript.ended, lambda: f"the run has not ended:\n{transcript}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m argosy.testing.transcripts", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds until the run must have ended")
    options = parser.parse_args()
    with transcribing(options.kubeconfig, options.namespace, options.name) as transcript:
        wait_for(lambda: transcript.ended, "the run has ended", options.patience)
    sys.stdout.write(str(transcript))


if __name__ == "__main__":
    main()
