"""The benchmark on a real kube-apiserver runs on a small scale and yields all its figures."""

import os

import msgspec
import pytest

from argosy.kinds.spot import SpotInstanceJob
from argosy.operator.apis.registry import APIS
from bench import kubernetes
from bench.job_apis import JOB_APIS
from bench.kubernetes import Sizes, measure_on
from tests.support.servers import Server
from tests.support.waiting import connections_closed

SMALL = Sizes(
    rounds=1,
    baseline_pods=4,
    job_workers=(4,),
    burst_jobs=2,
    repaired_jobs=2,
    finished_jobs=3,
    running_jobs=2,
    settle_seconds=0.1,
    idle_seconds=0.1,
)
BURST = msgspec.structs.replace(SMALL, workloads=("w2",))
BURST_FIGURES = (
    "w2_{}_ratio",
    "w2_{}_cpu_ms_per_pod",
    "w2_{}_requests_per_pod",
    "w2_{}_completed_s",
    "w2_{}_status_writes_per_job",
    "w2_{}_events_per_job",
)
OTHER_FIGURES = ("w1_{}_4_ratio", "w1_{}_4_requests_per_pod", "w3_{}_repair_p50_s", "w3_{}_ratio")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_burst_of_jobs_is_measured_for_every_api(real_apiserver: Server) -> None:
    figures = {figure.name: figure async for figure in measure_on(real_apiserver, BURST)}
    await connections_closed()
    assert figures.keys() >= {name.format(api.name) for name in BURST_FIGURES for api in JOB_APIS}
    for api in JOB_APIS:
        requests = figures[f"w2_{api.name}_requests_per_pod"].value
        assert requests >= 1, "the operator creates each pod by a request"
        assert figures[f"w2_{api.name}_status_writes_per_job"].value >= 1
        assert figures[f"w2_{api.name}_errors"].value == 0
    assert all(msgspec.json.encode(figure) and figure.line() for figure in figures.values())


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_every_workload_is_measured(real_apiserver: Server) -> None:
    sizes = msgspec.structs.replace(SMALL, workloads=("w1", "w3", "w4"))
    figures = {figure.name: figure async for figure in measure_on(real_apiserver, sizes)}
    await connections_closed()
    assert figures.keys() >= {name.format(api.name) for name in OTHER_FIGURES for api in JOB_APIS}
    assert figures.keys() >= {"w4_synced_s", "w4_idle_cpu_percent", "w4_rss_mb"}


def test_every_served_api_is_measured() -> None:
    served = {job.kind for api in APIS for job in api.jobs}
    assert {api.api.kind for api in JOB_APIS} == served - {SpotInstanceJob}, (
        "pods of a SpotInstanceJob are created by the controller of Jobs"
    )


def test_without_a_kube_apiserver_the_benchmark_is_skipped_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert list(kubernetes.measure()) == []
    assert "kubernetes: skipped: etcd is not in KUBEBUILDER_ASSETS" in capsys.readouterr().err
