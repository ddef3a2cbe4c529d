"""Random faults and requests: every plan keeps the invariants, and the job comes to rest in a right state."""

import pytest

from tests.support.et_random import RandomJob

STEPS = 40
WORKER_POLICIES = ("Never", "OnFailure", "Always", "ExitCode")


def check(seed: int) -> None:
    changes: dict[str, object] = {
        "worker.restartPolicy": WORKER_POLICIES[seed % 4],
        "restartPolicy": ("Never", "OnFailure")[seed // 4 % 2],
        "launcher.restartPolicy": ("Never", "Always")[seed // 8 % 2],
        "backoffLimit": 3,
    }
    if seed % 3 == 1:
        changes["checkpoint"] = {"store": "file:///store", "suspendGrace": "20s"}
    if seed % 3 == 2 and seed % 2:
        changes["checkpoint"] = {"store": "file:///store", "signal": "SIGTERM"}
    job = RandomJob(seed, changes)
    for _ in range(STEPS):
        job.step()
    job.settle()
    job.check()


@pytest.mark.parametrize("seed", range(16))
def test_a_job_to_which_anything_happens_comes_to_rest(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(16, 316))
def test_many_jobs_to_which_anything_happens_come_to_rest(seed: int) -> None:
    check(seed)
