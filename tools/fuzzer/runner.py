"""Replays sequences against both servers, several at a time.

Both servers get the requests concurrently. A sequence with different responses is sent again, in a new
namespace, before it counts: kube-apiserver applies some changes with a delay. The number of sequences that
agree only the second time is limited, so that the retry cannot hide real differences.
"""

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.differential import Caller, ClosedError, Step, preparation, replay
from tests.support.field_paths import Json
from tests.support.servers import Server
from tools.fuzzer import sequences
from tools.fuzzer.known_differences import without_known_differences
from tools.fuzzer.report import Disagreement, Summary
from tools.fuzzer.widget_kind import define


@dataclass(frozen=True)
class Answers:
    """The responses of both servers to the compared steps."""

    want: list[Json]
    got: list[Json]

    @property
    def agree(self) -> bool:
        return self.want == self.got


class Worker:
    """Replays one sequence at a time, over open connections."""

    def __init__(self, reference: Server, ours: Server) -> None:
        self._callers = Caller(reference), Caller(ours)
        self._pool = ThreadPoolExecutor(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        for caller in self._callers:
            caller.__exit__(kind, error, traceback)

    def prepare(self) -> None:
        """Define the kind that sequences share."""
        list(self._pool.map(define, self._callers))

    def set_timeout(self, *, seconds: float) -> None:
        """Set for how long a step is repeated until its condition is true."""
        for caller in self._callers:
            caller.patience = seconds

    def ask(self, steps: Sequence[Step]) -> Answers:
        """Send the steps to both servers in a new namespace; returns the responses."""
        namespace = f"o{secrets.token_hex(5)}"
        want, got = self._pool.map(lambda caller: _answers(caller, namespace, steps), self._callers)
        return Answers(want, got)


def _answers(caller: Caller, namespace: str, steps: Sequence[Step]) -> list[Json]:
    try:
        answers = replay(caller, namespace, steps, _needed_preparation(namespace, steps))
        return [without_known_differences(answer) for answer in answers]
    except (TimeoutError, ClosedError) as error:
        return [str(error).replace(namespace, "$ns")]


def _needed_preparation(namespace: str, steps: Sequence[Step]) -> list[Step]:
    """The preparation that these steps need: mostly only the namespace."""
    paths = " ".join(step.path for step in steps)
    first, *later = preparation(namespace)
    needed = {
        "serviceaccounts": "/pods" in paths or "/serviceaccounts" in paths,
        "configmaps": "/configmaps" in paths,
    }
    return [first, *(step for step in later if any(needed[kind] and kind in step.path for kind in needed))]


OnDisagreement = Callable[[Disagreement, Worker], None]


def run(
    reference: Server,
    ours: Server,
    seed: int,
    numbers: Iterable[int],
    workers: int = 2,
    on_disagreement: OnDisagreement | None = None,
) -> Summary:
    """Replay the sequences of a seed with these numbers; calls `on_disagreement` for each new kind."""
    summary, lock, remaining = Summary(), threading.Lock(), iter(numbers)

    def process() -> None:
        with Worker(reference, ours) as worker:
            while True:
                with lock:
                    number = next(remaining, None)
                if number is None:
                    return
                sequence = sequences.generate(seed, number)
                answers = worker.ask(sequence.steps)
                disagreement, agreed_on_retry = None, False
                if not answers.agree:
                    again = worker.ask(sequence.steps)
                    agreed_on_retry = again.agree
                    disagreement = None if agreed_on_retry else Disagreement(sequence, again.want, again.got)
                with lock:
                    is_new = summary.add(len(sequence.steps), disagreement, agreed_on_retry=agreed_on_retry)
                if disagreement is not None and is_new and on_disagreement is not None:
                    on_disagreement(disagreement, worker)

    with Worker(reference, ours) as first:
        first.prepare()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(process) for _ in itertools.repeat(None, workers)]:
            done.result()
    return summary
