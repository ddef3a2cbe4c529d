"""The benchmark against a real kube-apiserver, at a size at which it says nothing but that it works."""

import os

import msgspec
import pytest

from bench import kubernetes
from bench.kubernetes import Sizes, measured
from tests.support.servers import Server
from tests.support.waiting import connections_closed

TINY = Sizes(
    rounds=1,
    alone=4,
    big=(4,),
    jobs=2,
    broken=2,
    finished=3,
    kept=2,
    run_seconds=1.0,
    late_seconds=0.1,
    idle_seconds=0.1,
)
PROMISED = {
    "w1_4_ratio",
    "w2_ratio",
    "w2_cpu_ms_per_pod",
    "w2_requests_per_pod",
    "w2_rss_mb",
    "w3_repair_p50_s",
    "w3_repair_p99_s",
    "w4_synced_s",
    "w4_idle_cpu_percent",
    "w4_rss_mb",
}


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_every_workload_runs_to_its_end_and_gives_its_figures(real_apiserver: Server) -> None:
    figures = {figure.name: figure async for figure in measured(real_apiserver, TINY)}
    await connections_closed()
    assert figures.keys() >= PROMISED
    assert figures["w2_post_per_pod"].value >= 1, "each pod was made by a POST of the operator"
    assert 0 < figures["w3_repair_p50_s"].value <= figures["w3_repair_p99_s"].value
    assert figures["w2_refused"].value == 0
    assert all(msgspec.json.encode(figure) and figure.line() for figure in figures.values())


def test_without_a_kube_apiserver_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert list(kubernetes.measure()) == []
    assert "kubernetes: left out, for etcd is not in KUBEBUILDER_ASSETS" in capsys.readouterr().err
