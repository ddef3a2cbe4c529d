"""Replays sequences against both servers, several lanes of them at a time.

Both servers are asked at once. A sequence that is answered differently is sent again, in a namespace of its
own again, before that counts: the judge answers some things a moment later than it says. How often the second
time helped is counted, and bounded, so that it cannot hide what it should not.
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
from tools.fuzzer.report import Account, Disagreement
from tools.fuzzer.widget_kind import define


@dataclass(frozen=True)
class Answers:
    """What both servers answered to the steps that are shown."""

    want: list[Json]
    got: list[Json]

    @property
    def agree(self) -> bool:
        return self.want == self.got


class Lane:
    """One sequence at a time, over connections that stay open."""

    def __init__(self, judge: Server, ours: Server) -> None:
        self._callers = Caller(judge), Caller(ours)
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

    def hurry(self, *, patience: float) -> None:
        """Wait no longer than that for what steps wait for."""
        for caller in self._callers:
            caller.patience = patience

    def ask(self, steps: Sequence[Step]) -> Answers:
        """Both servers' answers, in a fresh namespace."""
        namespace = f"o{secrets.token_hex(5)}"
        want, got = self._pool.map(lambda caller: _answers(caller, namespace, steps), self._callers)
        return Answers(want, got)


def _answers(caller: Caller, namespace: str, steps: Sequence[Step]) -> list[Json]:
    try:
        answers = replay(caller, namespace, steps, _prepared(namespace, steps))
        return [without_known_differences(answer) for answer in answers]
    except (TimeoutError, ClosedError) as error:
        return [str(error).replace(namespace, "$ns")]


def _prepared(namespace: str, steps: Sequence[Step]) -> list[Step]:
    """What these steps need of what every namespace is given: most need nothing but the namespace."""
    paths = " ".join(step.path for step in steps)
    first, *rest = preparation(namespace)
    needed = {
        "serviceaccounts": "/pods" in paths or "/serviceaccounts" in paths,
        "configmaps": "/configmaps" in paths,
    }
    return [first, *(step for step in rest if any(needed[kind] and kind in step.path for kind in needed))]


Found = Callable[[Disagreement, Lane], None]


def run(
    judge: Server,
    ours: Server,
    seed: int,
    numbers: Iterable[int],
    lanes: int = 2,
    found: Found | None = None,
) -> Account:
    """Replay the sequences of a seed with these numbers; each disagreement is told as it is found."""
    account, lock, rest = Account(), threading.Lock(), iter(numbers)

    def work() -> None:
        with Lane(judge, ours) as lane:
            while True:
                with lock:
                    number = next(rest, None)
                if number is None:
                    return
                sequence = sequences.make(seed, number)
                answers = lane.ask(sequence.steps)
                disagreement, helped = None, False
                if not answers.agree:
                    again = lane.ask(sequence.steps)
                    helped = again.agree
                    disagreement = None if helped else Disagreement(sequence, again.want, again.got)
                with lock:
                    is_new = account.note(len(sequence.steps), disagreement, helped=helped)
                if disagreement is not None and is_new and found is not None:
                    found(disagreement, lane)

    with Lane(judge, ours) as first:
        first.prepare()
    with ThreadPoolExecutor(lanes) as pool:
        for done in [pool.submit(work) for _ in itertools.repeat(None, lanes)]:
            done.result()
    return account
