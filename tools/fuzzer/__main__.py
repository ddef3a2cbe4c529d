"""`python -m tools.fuzzer --seed N --count M`: search for requests with other responses than Kubernetes'.

Each new kind of disagreement is shrunk and printed when it is found; a summary comes last. The exit code is 0
if all sequences agree.
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
from tools.fuzzer.report import Disagreement, describe
from tools.fuzzer.runner import Worker
from tools.fuzzer.sequences import generate
from tools.fuzzer.shrink import shrink_disagreement


def main() -> int:
    options = _parser().parse_args()
    end = time.monotonic() + (options.seconds or float("inf"))
    requested = range(options.start, options.start + options.count)
    selected = (number for number in requested if _uses_resource(options.about, options.seed, number))
    numbers = itertools.takewhile(lambda _: time.monotonic() < end, selected)
    with (
        TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder,
        servers.real_apiserver(Path(folder) / "real") as reference,
        servers.local_apiserver(Path(folder) / "local") as ours,
    ):
        summary = runner.run(reference, ours, options.seed, numbers, options.workers, _Printer())
    for signature, count in summary.disagreed.most_common():
        _print(f"{count:5} {signature}")
    _print(f"seed {options.seed}: {summary}")
    return 1 if summary.problem else 0


def _uses_resource(resources: list[str], seed: int, number: int) -> bool:
    """True if the sequence uses one of these resources, or if none is named."""
    if not resources:
        return True
    requested = {part for step in generate(seed, number).steps for part in step.path.split("?")[0].split("/")}
    return not requested.isdisjoint(resources)


class _Printer:
    """Prints disagreements, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, disagreement: Disagreement, worker: Worker) -> None:
        sequence = disagreement.sequence
        steps, answers = shrink_disagreement(disagreement, worker)
        with self._lock:
            _print(f"\n=== seed {sequence.seed} number {sequence.number}: {disagreement.signature}")
            _print(describe(steps, answers.want, answers.got))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzzer", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the seed of the random generator")
    parser.add_argument("--count", type=int, default=500, help="number of sequences (default %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="number of the first sequence (default 0)")
    parser.add_argument("--seconds", type=float, help="start no more sequences after this time")
    parser.add_argument("--about", nargs="*", default=[], help="only sequences with one of these resources")
    parser.add_argument("--workers", type=int, default=2, help="concurrent sequences (default %(default)s)")
    return parser


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
