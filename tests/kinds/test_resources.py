"""Resource requests of pods."""

import msgspec
import pytest

from argosy.kinds.resources import parse_resource, pod_requests, pod_usage
from argosy.local.controllers.api_types import Pod, PodSpec

QUANTITIES = {
    "cpu 500m: 500 millicores": ("cpu", "500m", 500),
    "cpu 1: 1000 millicores": ("cpu", "1", 1000),
    "cpu 1.5: 1500 millicores": ("cpu", "1.5", 1500),
    "cpu below a millicore: rounded up": ("cpu", "100u", 1),
    "memory 1Ki: 1024 bytes": ("memory", "1Ki", 1024),
    "memory 1M: a million bytes": ("memory", "1M", 1_000_000),
    "memory 1500m: rounded up to 2 bytes": ("memory", "1500m", 2),
    "memory 1e3: scientific notation": ("memory", "1e3", 1000),
    "memory 1E: exabyte, not an exponent": ("memory", "1E", 10**18),
    "2 GPUs: 2 units": ("nvidia.com/gpu", "2", 2),
}


@pytest.mark.parametrize("case", QUANTITIES.values(), ids=QUANTITIES)
def test_parse_resource(case: tuple[str, str, int]) -> None:
    name, text, want = case
    assert parse_resource(name, text) == want


def _container(cpu: str, always: bool = False) -> dict[str, object]:
    return {"resources": {"requests": {"cpu": cpu}}, **({"restartPolicy": "Always"} if always else {})}


REQUESTS: dict[str, tuple[dict[str, object], dict[str, int]]] = {
    "two containers: requests are added": (
        {"containers": [_container("1"), _container("500m")]},
        {"cpu": 1500},
    ),
    "init container larger than the containers: it counts": (
        {"containers": [_container("1")], "initContainers": [_container("3"), _container("2")]},
        {"cpu": 3000},
    ),
    "sidecar: added to the containers": (
        {"containers": [_container("1")], "initContainers": [_container("1", always=True)]},
        {"cpu": 2000},
    ),
    "init container after a sidecar: added to that sidecar only": (
        {
            "containers": [_container("1")],
            "initContainers": [_container("3"), _container("1", always=True), _container("3")],
        },
        {"cpu": 4000},
    ),
    "overhead: added": ({"containers": [_container("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    "limit without request: the limit counts": (
        {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        {"nvidia.com/gpu": 1},
    ),
    "pod-level requests: replace the sum": (
        {"containers": [_container("1")], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": 3000},
    ),
}


@pytest.mark.parametrize("case", REQUESTS.values(), ids=REQUESTS)
def test_pod_requests(case: tuple[dict[str, object], dict[str, int]]) -> None:
    spec, want = case
    assert pod_requests(msgspec.convert(spec, PodSpec)) == want


def test_pod_usage_without_requests_has_defaults() -> None:
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [{}, {}]}}, Pod)
    assert pod_requests(pod.spec) == {}
    assert pod_usage(pod.spec)["cpu"] == 200
