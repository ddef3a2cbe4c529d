"""Tests for the metrics of a whole operator: documented, well formed, and bounded in number."""

import re
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families as parse

from argosy.engine.metrics import Metrics
from argosy.frameworks.registry import installed
from argosy.operator.apis import spot_pod_webhook
from argosy.operator.apis.registry import CUSTOM_RESOURCES
from argosy.operator.apis.spot_metrics import SpotMetrics
from argosy.operator.bounds import EndpointMetrics
from argosy.operator.checkpoint_acks import CheckpointAckMetrics
from argosy.operator.host_acks import HostAckMetrics, Result
from argosy.operator.job_metrics import JobMetrics
from argosy.wire.client import Client
from argosy.wire.connection_limits import RejectReason
from argosy.wire.origin import Origin
from argosy.workload.model import Phase
from argosy.workload.operation import ScaleStep
from argosy.workload.restarts.causes import RestartCause
from tests.support.builders import run
from tests.support.captured_logs import captured_lines
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import free_port

DOCS = Path(__file__).parents[2] / "docs" / "administrators" / "operations.md"
ROW = re.compile(r"^\| `(argosy_\w+)(?:\{([\w,]+)\})?` \| (\w+) \|", re.MULTILINE)
CAUSE = re.compile(r"^\| `([A-Z]\w+)` \|", re.MULTILINE)
KINDS = (
    "Pod Node Service ServiceAccount Role RoleBinding ConfigMap PodDisruptionBudget PodGroup"
    " CustomResourceDefinition PodGroup.scheduling.volcano.sh Job Deployment StatefulSet Secret"
    " PropagationPolicy"
)
SERVED_KINDS = {kind.resource.kind for kind in CUSTOM_RESOURCES}
WATCHED_KINDS = {*KINDS.split(), *SERVED_KINDS}
OTHER_CACHES = {f"{kind} ({use})" for kind in WATCHED_KINDS for use in ("needed", "owned")}
"""Kinds that reconcilers of other kinds read, from a cache of its own."""
VALUES: dict[str, set[str]] = {
    "controller": SERVED_KINDS,
    "framework": set(installed()),
    "phase": set(Phase),
    "cause": set(RestartCause),
    "kind": WATCHED_KINDS | OTHER_CACHES,
    "method": {"GET", "POST", "PUT", "PATCH", "DELETE", "WATCH"},
    "result": {
        "success",
        "error",
        "non-zero-exit",
        "not-reachable",
        "timed-out",
        "pod-gone",
        "cancelled",
        *get_args(Result),
        *get_args(spot_pod_webhook.Result),
        "Succeeded",
        "Failed",
    },
    "direction": {"Out", "In"},
    "step": set(ScaleStep),
    "reason": {
        *get_args(RejectReason),
        "unknown-job",
        "webhook-busy",
        "webhook-slow",
        "too-large",
        "error",
        "idle-timeout",
        "gone",
        "no-watch-list",
    },
}


def full_name(name: str, kind: str | None) -> str:
    return f"{name}_total" if kind == "counter" else name


def labels_of(metric: Metric) -> set[str]:
    return {label for sample in metric.samples for label in sample.labels if label != "le"}


def test_every_metric_is_documented_with_its_labels_and_type() -> None:
    registry = CollectorRegistry()
    Metrics(registry), EndpointMetrics(registry), HostAckMetrics(registry), CheckpointAckMetrics(registry)
    SpotMetrics(registry, JobMetrics(registry).usage), spot_pod_webhook.PodMetrics(registry)
    defined = {
        (full_name(metric._name, metric._type), ",".join(metric._labelnames), metric._type)
        for metric in registry._collector_to_names
        if isinstance(metric, MetricWrapperBase)
    }
    assert set(ROW.findall(DOCS.read_text())) == defined


def test_every_cause_of_a_restart_is_documented() -> None:
    assert set(CAUSE.findall(DOCS.read_text())) == set(RestartCause)


async def scraped(port: int) -> dict[str, Metric]:
    client = Client(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        answer = await client.send("GET", "/metrics", {})
    except ConnectionError:
        return {}
    finally:
        await client.close()
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {metric.name: metric for metric in parse(answer.body.decode())}


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    family = metrics.get(name.removesuffix("_total").removesuffix("_count"))
    samples = family.samples if family else ()
    return sum(
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_metrics_of_a_run(scene: Scene) -> None:
    port = free_port()
    with captured_lines() as lines:
        async with scene.operator(**shown_at(port)):
            await scene.apply(run().role("worker", 2, restart="OnFailure"))
            await scene.until_pods("mnist-worker-0", "mnist-worker-1")
            await scene.report_all("Running")
            await scene.until_phase("Running")
            running = await scraped(port)
            uid = (await scene.pods())["mnist-worker-1"].metadata.uid
            await scene.report("mnist-worker-1", "Failed", code=137)

            async def replaced() -> bool:
                pod = (await scene.pods()).get("mnist-worker-1")
                return pod is not None and pod.metadata.uid != uid

            await scene.until("the worker is another", replaced)
            await scene.report_all("Running")
            await scene.until_phase("Running")
            series = sum(len(metric.samples) for metric in (await scraped(port)).values())
            for name in ("second", "third"):
                await scene.apply(run(name).role("worker", 1))
            await scene.until_pods("mnist-worker-0", "mnist-worker-1", "second-worker-0", "third-worker-0")
            await scene.report_all("Succeeded")
            for name in ("mnist", "second", "third"):
                await scene.until_phase("Succeeded", name)

            async def counted() -> bool:
                return value(await scraped(port), "argosy_jobs", phase="Succeeded") == 3

            await scene.until("all three are counted", counted)
            metrics = await scraped(port)
    assert value(running, "argosy_jobs", kind="TrainingRun", phase="Running") == 1
    assert value(metrics, "argosy_jobs") == 3
    assert value(metrics, "argosy_job_restarts_total", cause="Signal") == 1
    assert value(metrics, "argosy_job_phase_duration_seconds_count", phase="Restarting") == 1
    assert value(metrics, "argosy_api_requests_total", method="POST", code="201") >= 5
    assert value(metrics, "argosy_api_requests_total", method="WATCH", code="200") >= 8
    assert value(metrics, "argosy_reconcile_total", result="success") > 3
    assert value(metrics, "argosy_reconcile_duration_seconds_count") > 3
    assert value(metrics, "argosy_workqueue_wait_duration_seconds_count") > 3
    assert value(metrics, "argosy_cache_objects", kind="Pod") == 4
    assert value(metrics, "argosy_cache_objects", kind="TrainingRun") == 3
    assert value(metrics, "argosy_cache_synced", kind="Pod") == 1
    assert value(metrics, "argosy_cache_seconds_since_event", kind="Pod") >= 0
    for metric in metrics.values():
        for sample in metric.samples:
            for label, label_value in sample.labels.items():
                assert label_value in VALUES.get(label, {label_value}), (sample.name, label, label_value)
            assert re.fullmatch(r"\d{3}|none", sample.labels.get("code", "none"))
    more = sum(len(metric.samples) for metric in metrics.values()) - series
    new = {"Succeeded": 1, "phase_seconds": 2 * 13, "codes": 6}
    assert more <= sum(new.values()), "what two more jobs bring are phases and codes that were not there yet"
    logged = [
        (line["previous_phase"], line["phase"], line["attempt"])
        for line in lines
        if line["event"] == "phase changed" and line["object"] == f"{scene.namespace}/mnist"
    ]
    assert logged[0][0] == ""
    assert [phase for _, phase, _ in logged][-3:] == ["Restarting", "Running", "Succeeded"]
    assert {attempt for _, _, attempt in logged} == {1}
