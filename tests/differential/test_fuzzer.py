"""Random sequences of requests get the same responses from both servers.

A disagreement is shrunk before it is shown; `python -m tools.fuzzer` searches with other seeds, and what it
finds becomes a case of `test_regressions`.
"""

import pytest

from tests.support.servers import Server
from tools.fuzzer import runner
from tools.fuzzer.report import Disagreement, describe
from tools.fuzzer.runner import Worker
from tools.fuzzer.shrink import shrink_disagreement

SEED = 20
MAX_SHOWN = 3
"""Number of disagreements that are shrunk and shown, which takes a while."""


def check_sequences(reference: Server, ours: Server, count: int) -> None:
    shown: list[str] = []

    def show(disagreement: Disagreement, worker: Worker) -> None:
        if len(shown) < MAX_SHOWN:
            steps, answers = shrink_disagreement(disagreement, worker)
            shown.append(f"{disagreement.signature}\n{describe(steps, answers.want, answers.got)}")

    summary = runner.run(reference, ours, SEED, range(count), workers=2, on_disagreement=show)
    if summary.problem:
        on_disagreement = "\n\n".join([str(summary), *shown])
        pytest.fail(f"{summary.problem}\n{on_disagreement}", pytrace=False)
    assert summary.sequences == count


def test_sequences_agree(real_apiserver: Server, local_apiserver: Server) -> None:
    check_sequences(real_apiserver, local_apiserver, 30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_sequences_agree(real_apiserver: Server, local_apiserver: Server) -> None:
    check_sequences(real_apiserver, local_apiserver, 4_000)
