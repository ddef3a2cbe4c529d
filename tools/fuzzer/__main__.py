"""`python -m tools.fuzzer --seed N --count M`: search for requests that ours answers otherwise.

Each new way of disagreeing is printed when it is found, cut down to few steps; the account comes last. The
exit code is 0 when all sequences agree.
"""

import argparse
import itertools
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import servers
from tools.fuzzer import runner
from tools.fuzzer.report import Disagreement, described
from tools.fuzzer.runner import Lane
from tools.fuzzer.sequences import make
from tools.fuzzer.shrink import cut_down


def main() -> int:
    options = _parser().parse_args()
    end = time.monotonic() + (options.seconds or float("inf"))
    asked = range(options.start, options.start + options.count)
    wanted = (number for number in asked if _about(options.about, options.seed, number))
    numbers = itertools.takewhile(lambda _: time.monotonic() < end, wanted)
    with (
        TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder,
        servers.real_apiserver(Path(folder) / "real") as judge,
        servers.local_apiserver(Path(folder) / "local") as ours,
    ):
        account = runner.run(judge, ours, options.seed, numbers, options.lanes, _Printer())
    for way, count in account.disagreed.most_common():
        _say(f"{count:5} {way}")
    _say(f"seed {options.seed}: {account}")
    return 1 if account.problem else 0


def _about(resources: list[str], seed: int, number: int) -> bool:
    """Whether the sequence asks for one of these resources; for any if none is named."""
    if not resources:
        return True
    asked = {part for step in make(seed, number).steps for part in step.path.split("?")[0].split("/")}
    return not asked.isdisjoint(resources)


class _Printer:
    """Prints what is found, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, disagreement: Disagreement, lane: Lane) -> None:
        sequence = disagreement.sequence
        steps, answers = cut_down(disagreement, lane)
        with self._lock:
            _say(f"\n=== seed {sequence.seed} number {sequence.number}: {disagreement.sign}")
            _say(described(steps, answers.want, answers.got))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzzer", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="what all chance comes from")
    parser.add_argument("--count", type=int, default=500, help="how many sequences (default %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first one (default 0)")
    parser.add_argument("--seconds", type=float, help="begin no more after so long")
    parser.add_argument("--about", nargs="*", default=[], help="only sequences with one of these resources")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time (default %(default)s)")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
