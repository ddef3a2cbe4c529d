import pytest
from msgspec.structs import replace

from argosy.frameworks.pytorch import PyTorch
from argosy.workload.model import Elastic, ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

TORCH = PyTorch()
SUFFIX = "ns.svc.cluster.local"
GPUS = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}


def job(*roles: Role, **options: object) -> Workload:
    return TORCH.defaults(replace(workload(*roles), framework="pytorch", options=options))


def env(workload: Workload, name: str, index: int) -> dict[str, str]:
    return dict(TORCH.inject(workload, workload.roles[name], index).env)


def test_static_workers_without_a_master() -> None:
    variables = env(job(role("worker", 3)), "worker", 2)
    assert {name: variables[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")} == {
        "MASTER_ADDR": f"job-worker-0.job-worker.{SUFFIX}",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "3",
        "RANK": "2",
    }
    assert (variables["PET_NNODES"], variables["PET_NODE_RANK"], variables["LOCAL_RANK"]) == ("3", "2", "0")


def test_a_master_is_rank_0_and_workers_follow() -> None:
    workload = job(role("worker", 2), role("master", 1))
    places = (("master", 0), ("worker", 0), ("worker", 1))
    assert [env(workload, name, index)["RANK"] for name, index in places] == ["0", "1", "2"]
    assert env(workload, "worker", 1)["MASTER_ADDR"] == f"job-master-0.job-master.{SUFFIX}"
    assert TORCH.rules(workload).succeeded_when == (("master", "worker"),)


def test_several_processes_in_a_pod_multiply_the_ranks() -> None:
    for torch_job in (
        job(role("worker", 3), procsPerNode=2),
        job(replace(role("worker", 3), slots=2)),
        job(replace(role("worker", 3), template=GPUS)),
    ):
        variables = env(torch_job, "worker", 1)
        assert (variables["WORLD_SIZE"], variables["RANK"], variables["LOCAL_WORLD_SIZE"]) == ("6", "2", "2")
        assert variables["PET_NPROC_PER_NODE"] == "2"
        assert "LOCAL_RANK" not in variables


def test_elastic_workers_get_a_rendezvous_at_the_first_worker() -> None:
    workload = job(role("worker", 4, elastic=Elastic(2, 8)), port=1234)
    variables = env(workload, "worker", 3)
    assert variables["PET_NNODES"] == "2:8"
    assert variables["PET_RDZV_BACKEND"] == "c10d"
    assert variables["PET_RDZV_ENDPOINT"] == f"job-worker-0.job-worker.{SUFFIX}:1234"
    assert variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert "RANK" not in variables


def test_elastic_jobs_replace_pods_and_static_jobs_restart() -> None:
    static, elastic = job(role("worker", 2)), job(role("worker", 2, elastic=Elastic(1, 2)))
    assert (TORCH.rules(static).restart_scope, TORCH.rules(static).resize) == (
        RestartScope.JOB,
        ResizeMode.RESTART,
    )
    assert (TORCH.rules(elastic).restart_scope, TORCH.rules(elastic).resize) == (
        RestartScope.POD,
        ResizeMode.LIVE,
    )


def test_only_elastic_workers_depend_on_the_first_one_alone() -> None:
    assert TORCH.rules(job(role("worker", 2))).coordinators == ()
    assert TORCH.rules(job(role("worker", 2, elastic=Elastic(1, 2)))).coordinators == ("worker",)


PROBLEMS = {
    "neither master nor worker: rejected": (
        [role("chief")],
        "spec.roles: framework pytorch requires a role 'worker'",
    ),
    "two masters: rejected": (
        [role("master", 2)],
        "spec.roles.master.replicas: invalid value 2: must be 1",
    ),
    "master with elastic workers: rejected": (
        [role("master", 1), role("worker", 2, elastic=Elastic(1, 2))],
        "spec.roles.master: not supported with elastic workers",
    ),
}


@pytest.mark.parametrize(("roles", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(roles: list[Role], want: str) -> None:
    problems = [str(problem) for problem in TORCH.check(job(*roles))]
    assert len(problems) == 1
    assert problems[0].startswith(want)
