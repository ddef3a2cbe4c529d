"""Elastic roles of AresJobs, without a server: how they follow the capacity, and what their pods get."""

import json
from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from argosy.dialects.ares.injection import inject
from argosy.kinds.aresjob import AresJob
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render import Json
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.announcements import NoticeCause
from argosy.workload.index_set import IndexSet
from argosy.workload.notice import Notice
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import CreatePod
from tests.support.aresjobs import API, SimulatedJob, job, messages, simulate, template, workload_of
from tests.support.workloads import later, pod, pods

WINDOW = 30.0
BOUNDS: Json = {"min": 2, "max": 8}
EVEN: Json = {"min": 2, "max": 8, "multipleOf": 2}


def elastic(bounds: Json = BOUNDS, framework: str = "custom", /, **fields: object) -> AresJob:
    """Return a job with four elastic workers."""
    obj = job(framework, roles={"worker": {"replicas": 4, "elastic": bounds}})
    return replace(obj, spec={**obj.spec, **fields})


def running(obj: AresJob) -> SimulatedJob:
    """Return the job once its four workers run."""
    return simulate(obj).start().reconcile(*pods("RRRR"))


def unplaced(index: int, created: float, replacement: int = 0) -> ObservedPod:
    waiting = pod(index, "Pending", waiting_reason="Unschedulable", replacement=replacement)
    return replace(waiting, created=later(created))


def members(simulated: SimulatedJob) -> list[object]:
    roles = cast("Json", simulated.status.argosy["roles"])
    return list(IndexSet.decode(str(cast("Json", roles["worker"])["members"])))


def test_job_runs_with_the_minimum_and_follows_the_capacity() -> None:
    started = simulate(elastic()).start()
    assert started.created == ["worker-0", "worker-1", "worker-2", "worker-3"]
    small = started.reconcile(*pods("RR"), unplaced(2, 2), unplaced(3, 2))
    assert (small.phase, small.role().phase) == ("Running", "Running")
    shrunk = small.reconcile(*pods("RR"), unplaced(2, 2), unplaced(3, 2), seconds=WINDOW)
    assert (shrunk.phase, shrunk.role().current_replicas) == ("Running", 2)
    assert shrunk.status.message == "worker runs with 2 of 4 pods, and grows when there is capacity"
    (resized,) = messages(shrunk.events, "Resized")
    assert resized.startswith("resized worker from 4 to 2 pods: worker-2 and worker-3 cannot be scheduled")
    assert shrunk.deleted == [], "their pods wait where an autoscaler sees them"
    grown = shrunk.reconcile(*pods("RRR"), unplaced(3, 2))
    assert grown.role().current_replicas == 3
    whole = grown.reconcile(*pods("RRRR"))
    assert (whole.role().current_replicas, whole.phase) == (0, "Running")
    assert whole.status.restart_history == []


def test_lost_pod_takes_another_with_it_where_only_even_sizes_are_allowed() -> None:
    lost = running(elastic(EVEN)).reconcile(*pods("RRRT"))
    assert (lost.role().current_replicas, members(lost)) == (2, [0, 1])
    assert lost.deleted == ["job-worker-2"]
    assert messages(lost.events, "Resized") == ["resized worker from 4 to 2 pods: worker-3 was lost"]


def test_below_the_minimum_the_job_waits_for_a_limited_time() -> None:
    """A terminating pod is replaced at once, so the role has all of its pods, and too few run."""
    obj = elastic(runPolicy={"belowMinTimeout": "5m"})
    gone = (pod(0), *(pod(index, "Pending", replacement=1) for index in (1, 2, 3)))
    waiting = running(obj).reconcile(*pods("RTTT")).reconcile(*gone)
    assert waiting.condition("Restarting") == (
        *("True", "BelowMinReplicas"),
        "waiting for worker: at least 2 pods must be running",
    )
    assert waiting.phase == "Running", "as with every other loss"
    back = waiting.reconcile(pod(0), pod(1, replacement=1), *gone[2:], seconds=200)
    assert back.condition("Restarting")[:2] == ("False", "Running")
    failed = waiting.reconcile(*gone, seconds=301)
    assert failed.phase == "Failed"
    assert failed.condition("Failed")[1:] == (
        "JobFailed",
        "worker had fewer than 2 running pods for 5 m (spec.runPolicy.belowMinTimeout)",
    )


def test_pods_leave_a_node_before_it_ends() -> None:
    workers = tuple(pod(index, node=f"n{index}") for index in range(4))
    notice = Notice(
        id="node/u",
        cause=NoticeCause.PREEMPTED,
        source="spot",
        node="n3",
        deadline=later(60),
        replicas={"worker": IndexSet.of((3,))},
    )
    before = simulate(elastic()).start().reconcile(*workers)
    leaving = before.reconcile_observed(Observed(pods=workers, notices=(notice,)))
    assert (leaving.deleted, leaving.created) == (["job-worker-3"], ["worker-4"])
    (shown,) = leaving.status.notices
    assert (shown.cause, shown.response, shown.replicas) == ("Preempted", "ScaleIn", ["worker-3"])


def test_new_size_is_followed_without_a_restart() -> None:
    larger = running(elastic()).with_spec(roleSpecs={"worker": {"replicas": 6}}).reconcile(*pods("RRRR"))
    assert larger.created == ["worker-4", "worker-5"]
    smaller = running(elastic()).with_spec(roleSpecs={"worker": {"replicas": 2}}).reconcile(*pods("RRRR"))
    assert sorted(smaller.deleted) == ["job-worker-2", "job-worker-3"]
    assert (smaller.phase, smaller.status.restart_history) == ("Running", [])


def test_scale_subresource_finds_its_pods() -> None:
    status = running(elastic()).status
    assert (status.replicas, status.selector) == (4, "ares.io/job-name=job,ares.io/replica-type=worker")
    without = simulate(job("pytorch", roles={"master": {}})).start().status
    assert (without.replicas, without.selector) == (0, "")


def init_containers(obj: AresJob) -> list[Json]:
    """Return the init containers of a worker's pod."""
    translated = workload_of(obj)
    renderer = PodRenderer(RenderContext(Helper("argosy"), "https://operator", "PEM"), lambda _: "token")
    body = renderer.for_job(translated, API.inject).render(CreatePod("worker", 5, 1, 0), "job-worker-5")
    return cast("list[Json]", cast("Json", body["spec"]).get("initContainers", []))


def names_and_ends(containers: Sequence[Json]) -> list[tuple[object, object]]:
    return [(container["name"], cast("list[str]", container["command"])[-1]) for container in containers]


def test_pods_of_a_multiple_wait_for_each_other_after_what_they_depend_on() -> None:
    worker: Json = {"replicas": 4, "elastic": EVEN, "dependence": {"roleNames": ["server"]}}
    waiting = init_containers(job(roles={"worker": worker, "server": {}}))
    assert names_and_ends(waiting) == [("initializer", "240"), ("argosy", "$(ARGOSY_INDEX)")]
    assert names_and_ends(init_containers(elastic(EVEN))) == [("argosy", "$(ARGOSY_INDEX)")]
    assert init_containers(elastic(BOUNDS)) == []


def env(obj: AresJob, index: int, role: str = "worker") -> dict[str, str]:
    translated = workload_of(obj)
    return dict(inject(translated, translated.roles[role], index).env)


def test_torchrun_gets_a_rendezvous_at_the_first_worker() -> None:
    obj = elastic(BOUNDS, "pytorch")
    host = "job-worker-0.job-worker.ns.svc.cluster.local:23456"
    variables = env(obj, 5)
    assert (variables["PET_NNODES"], variables["PET_RDZV_ENDPOINT"]) == ("2:8", host)
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NODE_RANK"} & variables.keys()
    rules = workload_of(obj).rules
    assert (rules.coordinators, rules.services) == (("worker",), ("worker",))


def test_lost_first_worker_of_torchrun_restarts_all_of_them() -> None:
    lost = running(elastic(BOUNDS, "pytorch")).reconcile(*pods("TRRR"))
    assert (lost.created, len(lost.deleted)) == ([], 3)
    (entry,) = lost.status.restart_history
    assert (entry.role, entry.index, entry.scope) == ("worker", 0, "Role")


def test_elastic_workers_of_dask_have_no_ranks() -> None:
    ports = {"template": template("dask", ports=[{"containerPort": 1}, {"containerPort": 2}])}
    others = dict.fromkeys(("scheduler", "launcher"), ports)
    others["leadworker"] = {"template": template("dask", ports=[{"containerPort": 3}])}
    fixed = job("dask", roles={**others, "worker": {"replicas": 4}})
    assert env(fixed, 3)["RANK"] == "4"
    variables = env(job("dask", roles={**others, "worker": {"replicas": 4, "elastic": BOUNDS}}), 3)
    assert sorted(variables) == ["SchedulerAddress", "SchedulerPort"]


def test_worker_of_tensorflow_in_the_place_of_another_has_itself_in_its_cluster() -> None:
    dynamic = {"tensorflow": {"enableDynamicWorker": True}}
    roles = {"worker": {"replicas": 2, "elastic": BOUNDS}, "ps": {}}
    config = json.loads(env(job("tensorflow", framework=dynamic, roles=roles), 5)["TF_CONFIG"])
    assert config["task"] == {"index": 5, "type": "worker"}
    assert config["sparseCluster"]["worker"]["5"].startswith("job-worker-5.job-worker.ns.svc.")


def test_bagua_trains_with_the_sizes_of_the_role() -> None:
    with_etcd = {"bagua": {"enableElastic": True}}
    roles = {"worker": {"replicas": 4, "elastic": BOUNDS}, "etcd": {}}
    variables = env(job("bagua", roles=roles, framework=with_etcd, availablePorts=list(range(1, 11))), 5)
    assert (variables["MIN_SIZE"], variables["MAX_SIZE"]) == ("2", "8")


def test_limit_without_elastic_roles_is_reported_as_ignored() -> None:
    reported = messages(simulate(job(runPolicy={"belowMinTimeout": "5m"})).reconcile().events, "FieldIgnored")
    assert reported == ["spec.runPolicy.belowMinTimeout: no role is elastic"]
