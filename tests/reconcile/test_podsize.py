"""Tests that jobs with pods too large to store are invalid, and that sizes are estimated correctly."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from msgspec import Struct

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.dialects.base import Inject
from argosy.dialects.trainingrun.dialect import TrainingRunDialect, training_run_api
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.codec import encode_body
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Namespace, Pod, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.plan.actions import ActionStatus
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.job_state import JobState
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Problems, Workload
from argosy.workload.naming import numbered_bytes
from argosy.workload.plan import CreatePod
from argosy.workload.pod_size import MAX_POD_BYTES
from tests.support import aresjobs
from tests.support.builders import pod_template, run
from tests.support.servers import Server

HELPER = Helper(image="helper", command=("argosy-helper",))
SITE = RenderContext(url="https://argosy.argosy-system.svc:9443", ca_pem="Q0E=", helper=HELPER)
CONTAINERS = {"spec": {"containers": [{"name": name, "image": "x"} for name in ("main", "log", "proxy")]}}


def training(
    framework: str, options: Mapping[str, object] | None = None, **roles: int
) -> Workload | Problems:
    builder = run("a-run-with-a-name", framework, "a-tenant").having(options=dict(options or {}))
    for name, replicas in roles.items():
        template = CONTAINERS if name == "worker" else pod_template()
        builder = builder.role(name, replicas, template=template)
    return TrainingRunDialect().to_workload(msgspec.convert(builder.build(), TrainingRun))


def ares(framework: str, roles: Mapping[str, int], ports: Sequence[int] = ()) -> Workload | Problems:
    written = {name: {"replicas": replicas} for name, replicas in roles.items()}
    return AresJobDialect().to_workload(aresjobs.job(framework, roles=written, availablePorts=list(ports)))


def body_bytes(workload: Workload, role: str, inject: Inject) -> int:
    """Return the size of the body of the role's last pod."""
    action = CreatePod(role, workload.roles[role].replicas - 1, 1, 0)
    pods = PodRenderer(SITE, lambda uid: "t" * 64).for_job(workload, inject)
    return len(encode_body(pods.render(action, workload.hostname(role, action.index)), Pod))


class Job(Struct):
    lowered: Workload | Problems
    role: str = "worker"


STORED = {
    "TrainingRun custom, lists of three roles in three containers": Job(
        training("custom", worker=300, ps=200, eval=100)
    ),
    "TrainingRun custom, a list that is left out": Job(training("custom", worker=501, ps=400)),
    "TrainingRun tensorflow": Job(training("tensorflow", worker=1_000, ps=100)),
    "TrainingRun tensorflow with dynamic workers": Job(
        training("tensorflow", {"dynamicWorkers": True}, worker=1_000, ps=500)
    ),
    "TrainingRun mpi, launcher": Job(training("mpi", launcher=1, worker=4_000), "launcher"),
    "TrainingRun horovod, launcher": Job(training("horovod", launcher=1, worker=4_000), "launcher"),
    "TrainingRun deepspeed": Job(training("deepspeed", worker=2_000)),
    "TrainingRun deepspeed, launcher": Job(training("deepspeed", launcher=1, worker=2_000), "launcher"),
    "TrainingRun bagua": Job(training("bagua", master=1, worker=1_000)),
    "TrainingRun pytorch": Job(training("pytorch", worker=50_000)),
    "AresJob custom": Job(ares("custom", {"worker": 900, "ps": 900, "1st": 900})),
    "AresJob custom, a list that is left out": Job(ares("custom", {"worker": 90_000, "ps": 900})),
    "AresJob tensorflow": Job(ares("tensorflow", {"worker": 2_000, "ps": 100})),
    "AresJob bagua with many ports": Job(ares("bagua", {"master": 1, "worker": 500}, range(2_000, 8_000))),
}


@pytest.mark.parametrize("case", STORED.values(), ids=STORED.keys())
def test_a_pod_is_about_as_large_as_estimated(case: Job) -> None:
    workload = case.lowered
    assert isinstance(workload, Workload), str(workload)
    inject = ares_job_api().inject if workload.kind == "AresJob" else training_run_api().inject
    actual = body_bytes(workload, case.role, inject)
    estimate = workload.roles[case.role].pod_bytes
    assert 0.9 * estimate - 8_000 < actual < 1.05 * estimate <= MAX_POD_BYTES


REFUSED = {
    "AresJob custom of 64 roles with 1,100 pods each": (
        ares("custom", {f"role-{number}": 1_100 for number in range(64)}),
        "spec.roleSpecs.role-0: a pod of this role would take ",
    ),
    "AresJob tensorflow of 50,000 workers": (
        ares("tensorflow", {"worker": 50_000}),
        "spec.roleSpecs.worker: a pod of this role would take ",
    ),
    "TrainingRun tensorflow of 50,000 workers": (
        training("tensorflow", worker=50_000),
        "spec.roles.worker: a pod of this role would take ",
    ),
    "TrainingRun deepspeed of 99,999 workers": (
        training("deepspeed", worker=99_999),
        "spec.roles.worker: a pod of this role would take ",
    ),
    "TrainingRun mpi of 10,000 workers, whose host file is no annotation any more": (
        training("mpi", launcher=1, worker=10_000),
        "spec.roles.launcher: the files and annotations of a pod of this role would take ",
    ),
    "AresJob bagua with all ports": (
        ares("bagua", {"master": 1, "worker": 2}, range(1, 65_536)),
        "spec.roleSpecs.master: a pod of this role would take ",
    ),
}


@pytest.mark.parametrize(("converted", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_a_job_with_pods_too_large_to_store_is_invalid(converted: Workload | Problems, want: str) -> None:
    assert isinstance(converted, Problems)
    assert str(converted).startswith(want)
    assert str(converted).endswith(("must be at most 1280 KiB", "must be at most 256 KiB"))


def test_addresses_of_an_invalid_job_are_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes: list[int] = []
    address = Workload.address

    def counting(self: Workload, role: str, index: int) -> str:
        indexes.append(index)
        return address(self, role, index)

    monkeypatch.setattr(Workload, "address", counting)
    roles = {f"role-{number}": 1_100 for number in range(64)}
    assert isinstance(ares("custom", roles), Problems)
    assert set(indexes) == {0}, "one of each role, to see how long it is"


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 99, 100, 101, 12_345])
def test_numbers_are_as_long_as_calculated(count: int) -> None:
    assert numbered_bytes(count, 3) == sum(len(f"abc{number}") for number in range(count))


@pytest.mark.parametrize("size", [1_600_000, 2_500_000, 3_500_000])
async def test_a_pod_too_large_for_the_api_server_is_invalid(real_apiserver: Server, size: int) -> None:
    """It is rejected by etcd, by the etcd client of the API server, or by the API server itself."""
    workload = training("custom", worker=1)
    assert isinstance(workload, Workload)
    memory = JobState(uid=workload.uid)
    env = [{"name": "LONG", "value": "x" * size}]
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b", "env": env}]}}
    async with Client(Connection.from_kubeconfig(real_apiserver.kubeconfig)) as client:
        await client.apply(Namespace, {"metadata": {"name": "a-tenant"}}, force=True)
        await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, "a-tenant", force=True)
        executor = ActionExecutor(
            client,
            SystemClock(),
            IgnoringCache(),
            workload,
            TrainingRun,
            memory,
            lambda action, name: body,
            lambda *place: "a",
            ByteBudget(),
        )
        await executor.execute([CreatePod("worker", 0, 1, 0)])
    assert [failure.status for failure in memory.retries.failures.values()] == [ActionStatus.INVALID]


class IgnoringCache:
    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None: ...
