"""The benchmark of elastic jobs runs on a small scale and yields all its figures."""

import os

import pytest

from bench import elastic
from bench.elastic import Sizes, measure_on
from tests.support.servers import Server
from tests.support.waiting import connections_closed

SMALL = Sizes(rounds=1, added_workers=3, lost_workers=1, jobs=2, plain_jobs=2, settle_seconds=0.1)
BURST_FIGURES = ("done_s", "beyond_pods_s", "cpu_ms_per_scale", "requests_per_scale", "errors")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_every_figure_is_measured(real_apiserver: Server) -> None:
    figures = {figure.name: figure async for figure in measure_on(real_apiserver, SMALL)}
    await connections_closed()
    bursts = {f"{name}_2_{word}" for name in ("scale_out", "scale_in") for word in BURST_FIGURES}
    others = {"scale_out_3_listed_s", "lost_worker_unlisted_max_s", "start_cpu_ms_per_request"}
    assert figures.keys() >= others | bursts
    assert figures["scale_out_2_requests_per_scale"].value >= 4, "a pod, a Service, a job and a scaler"
    assert all(figure.bound > 0 and figure.line() for figure in figures.values() if figure.unit)


def test_without_a_kube_apiserver_the_benchmark_is_skipped_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert list(elastic.measure()) == []
    assert "elastic: skipped: etcd is not in KUBEBUILDER_ASSETS" in capsys.readouterr().err
