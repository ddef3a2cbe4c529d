"""Tests the writes and actions of one scale operation: each costs the API server and the operator time."""

from tests.support.et_simulator import LAUNCHER, EtSimulator, J, running_job, worker


def quiet_job() -> EtSimulator:
    """Return a job of three workers that has come to rest."""
    job = running_job({"worker.replicas": 3})
    job.cluster.tick(10)
    job.run(3)
    job.steps.clear()
    return job


def test_the_steps_of_a_scale_out() -> None:
    job = quiet_job()
    job.scale_out("out", toAdd={"count": 1})
    job.run(20)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert job.steps == [
        "status of out",  # Created
        "owner of out",
        "status Scaling",  # the choice
        "status of out",  # shows the choice
        "status Scaling",  # numbers of pods: later, in the operator
        f"apply Service {worker(3)}",
        f"apply Secret {J}",
        "create worker 3",
        "status Scaling",  # the pod exists: in a burst with the next one
        f"attach in {worker(3)}",
        f"apply Role {LAUNCHER}",
        "status of out",  # numbers of pods: in a burst with the next one
        "status Running",  # a member, and listed
        f"apply ConfigMap {J}-config",
        "status of out",  # ScaleSucceeded
        f"hosts in {LAUNCHER}",  # there is no sidecar here
        "status Running",  # which of them has written the files
    ]


def test_the_steps_of_a_scale_in() -> None:
    job = quiet_job()
    job.scale_in("in")
    job.run(20)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.steps == [
        "status of in",  # Created
        "owner of in",
        "status Scaling",  # the choice
        "status of in",  # shows the choice
        "status Scaling",  # not listed any more
        f"apply ConfigMap {J}-config",
        "status of in",  # ScriptExecuted: in a burst with the next one
        f"hosts in {LAUNCHER}",  # there is no sidecar here
        "status Scaling",  # which of them has written the files
        f"drain in {LAUNCHER}",
        "status Scaling",  # not a member any more
        f"delete {worker(2)}",
        f"remove Service {worker(2)}",
        "status of in",  # numbers of pods: in a burst with the next one
        "status Running",
        f"apply Role {LAUNCHER}",
        "status of in",  # ScaleSucceeded
    ]
