"""What a pod asks for."""

import msgspec
import pytest

from argosy.kinds.resources import parse_resource, pod_requests, pod_usage
from argosy.local.controllers.kinds import Pod, PodSpec

QUANTITIES = {
    "half a core": ("cpu", "500m", 500),
    "a core": ("cpu", "1", 1000),
    "a core and a half": ("cpu", "1.5", 1500),
    "a fraction of a thousandth rounds up": ("cpu", "100u", 1),
    "binary memory": ("memory", "1Ki", 1024),
    "decimal memory": ("memory", "1M", 1_000_000),
    "memory in thousandths of bytes rounds up": ("memory", "1500m", 2),
    "scientific notation": ("memory", "1e3", 1000),
    "exa, not an exponent": ("memory", "1E", 10**18),
    "a GPU": ("nvidia.com/gpu", "2", 2),
}


@pytest.mark.parametrize("case", QUANTITIES.values(), ids=QUANTITIES)
def test_quantities_become_whole_numbers(case: tuple[str, str, int]) -> None:
    name, text, want = case
    assert parse_resource(name, text) == want


def _container(cpu: str, always: bool = False) -> dict[str, object]:
    return {"resources": {"requests": {"cpu": cpu}}, **({"restartPolicy": "Always"} if always else {})}


REQUESTS: dict[str, tuple[dict[str, object], dict[str, int]]] = {
    "containers add up": ({"containers": [_container("1"), _container("500m")]}, {"cpu": 1500}),
    "the largest init container counts if larger": (
        {"containers": [_container("1")], "initContainers": [_container("3"), _container("2")]},
        {"cpu": 3000},
    ),
    "a sidecar runs beside the containers": (
        {"containers": [_container("1")], "initContainers": [_container("1", always=True)]},
        {"cpu": 2000},
    ),
    "an init container runs beside the sidecars before it only": (
        {
            "containers": [_container("1")],
            "initContainers": [_container("3"), _container("1", always=True), _container("3")],
        },
        {"cpu": 4000},
    ),
    "overhead comes on top": ({"containers": [_container("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    "a limit stands in for a missing request": (
        {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        {"nvidia.com/gpu": 1},
    ),
    "pod level requests replace the sum": (
        {"containers": [_container("1")], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": 3000},
    ),
}


@pytest.mark.parametrize("case", REQUESTS.values(), ids=REQUESTS)
def test_a_pod_asks_for(case: tuple[dict[str, object], dict[str, int]]) -> None:
    spec, want = case
    assert pod_requests(msgspec.convert(spec, PodSpec)) == want


def test_a_pod_without_requests_is_taken_to_use_something() -> None:
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [{}, {}]}}, Pod)
    assert pod_requests(pod.spec) == {}
    assert pod_usage(pod.spec)["cpu"] == 200
