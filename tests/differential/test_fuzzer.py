"""Random sequences of requests are answered alike by both servers.

A disagreement is shown cut down; `python -m tools.fuzzer` searches with other seeds, and what it
finds becomes a case of `test_regressions`.
"""

import pytest

from tests.support.servers import Server
from tools.fuzzer import runner
from tools.fuzzer.report import Disagreement, described
from tools.fuzzer.runner import Lane
from tools.fuzzer.shrink import cut_down

SEED = 20
SHOWN = 3
"""How many disagreements are cut down and shown; that takes a while."""


def search(judge: Server, ours: Server, count: int) -> None:
    shown: list[str] = []

    def show(disagreement: Disagreement, lane: Lane) -> None:
        if len(shown) < SHOWN:
            steps, answers = cut_down(disagreement, lane)
            shown.append(f"{disagreement.sign}\n{described(steps, answers.want, answers.got)}")

    account = runner.run(judge, ours, SEED, range(count), lanes=2, found=show)
    if account.problem:
        found = "\n\n".join([str(account), *shown])
        pytest.fail(f"{account.problem}\n{found}", pytrace=False)
    assert account.sequences == count


def test_sequences_agree(real_apiserver: Server, local_apiserver: Server) -> None:
    search(real_apiserver, local_apiserver, 60)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_sequences_agree(real_apiserver: Server, local_apiserver: Server) -> None:
    search(real_apiserver, local_apiserver, 10_000)
