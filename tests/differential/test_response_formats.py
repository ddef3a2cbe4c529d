"""Other formats of a response: tables, metadata only, YAML."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.support.differential import Step, delete, get, patch, post
from tests.support.manifests import (
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    SERVICES,
    WIDGETS,
    config_map,
    definition,
    deployment,
    job,
    pod,
    service,
    widget,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
NODES = "/api/v1/nodes"

RUNNING = {
    "phase": "Running",
    "podIP": "10.1.2.3",
    "podIPs": [{"ip": "10.1.2.3"}],
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "main",
            "image": "busybox",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}


def waiting(reason: str) -> dict[str, object]:
    status = {
        "name": "main",
        "image": "b",
        "imageID": "",
        "ready": False,
        "restartCount": 2,
        "started": False,
    }
    return {"phase": "Pending", "containerStatuses": [{**status, "state": {"waiting": {"reason": reason}}}]}


def terminated(**state: object) -> dict[str, object]:
    status = {"name": "main", "image": "b", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "containerStatuses": [{**status, "state": {"terminated": state}}]}


def pod_row(status: Mapping[str, object]) -> list[Step]:
    return [
        post(PODS, pod(nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": status}, shown=False),
        get(PODS, accept=TABLE),
    ]


CASES: dict[str, list[Step]] = {
    "config maps as a table": [post(CONFIG_MAPS, config_map(), shown=False), get(CONFIG_MAPS, accept=TABLE)],
    "one object as a table": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}/a", accept=TABLE),
    ],
    "an empty table": [get(CONFIG_MAPS, accept=TABLE)],
    "a table with whole objects": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}?includeObject=Object", accept=TABLE),
    ],
    "a table without objects": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}?includeObject=None", accept=TABLE),
        get(f"{CONFIG_MAPS}?includeObject=Nonsense", accept=TABLE),
    ],
    "a pod that waits for a node in a table": [post(PODS, pod(), shown=False), get(PODS, accept=TABLE)],
    "a running pod in a table": pod_row(RUNNING),
    "a pod that cannot start in a table": pod_row(waiting("ImagePullBackOff")),
    "a failed pod in a table": pod_row(terminated(exitCode=3, reason="Error")),
    "a killed pod in a table": pod_row(terminated(exitCode=137, signal=9)),
    "a pod with an exit code alone in a table": pod_row(terminated(exitCode=2)),
    "a completed pod in a table": pod_row(
        {**terminated(exitCode=0, reason="Completed"), "phase": "Succeeded"}
    ),
    "an evicted pod in a table": pod_row({"phase": "Failed", "reason": "Evicted"}),
    "a pod that is being deleted in a table": [
        post(PODS, pod(nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": RUNNING}, shown=False),
        delete(f"{PODS}/a", shown=False),
        get(PODS, accept=TABLE),
    ],
    "a pod that initialises in a table": [
        post(PODS, pod(nodeName="n1", initContainers=[{"name": "i", "image": "b"}]), shown=False),
        patch(
            f"{PODS}/a/status",
            {
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        {
                            "name": "i",
                            "image": "b",
                            "imageID": "",
                            "ready": False,
                            "restartCount": 1,
                            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                        }
                    ],
                }
            },
            shown=False,
        ),
        get(PODS, accept=TABLE),
    ],
    "services as a table": [
        post(SERVICES, service("a", clusterIP="None"), shown=False),
        post(
            SERVICES,
            service(
                "b",
                clusterIP="None",
                ports=[{"name": "x", "port": 1}, {"name": "y", "port": 2, "protocol": "UDP"}],
            ),
            shown=False,
        ),
        get(SERVICES, accept=TABLE),
    ],
    "namespaces as a table": [get(f"{NAMESPACES}/$ns", accept=TABLE)],
    "jobs as a table": [
        post(JOBS, job(), shown=False),
        post(JOBS, job("b", completions=3, parallelism=2), shown=False),
        get(JOBS, accept=TABLE),
    ],
    "deployments as a table": [
        post(DEPLOYMENTS, deployment(replicas=2), shown=False),
        get(DEPLOYMENTS, accept=TABLE),
    ],
    "nodes as a table": [
        post(
            NODES,
            {"metadata": {"name": "node-$ns", "labels": {"node-role.kubernetes.io/worker": ""}}},
            shown=False,
        ),
        patch(
            f"{NODES}/node-$ns/status",
            {
                "status": {
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {
                        "architecture": "amd64",
                        "bootID": "b",
                        "containerRuntimeVersion": "argosy://1",
                        "kernelVersion": "6",
                        "kubeProxyVersion": "v1",
                        "kubeletVersion": "v1.2.3",
                        "machineID": "m",
                        "operatingSystem": "linux",
                        "osImage": "Debian",
                        "systemUUID": "u",
                    },
                }
            },
            shown=False,
        ),
        get(f"{NODES}/node-$ns", accept=TABLE),
        get(f"{NODES}/node-$ns", hide=("spec",)),
        delete(f"{NODES}/node-$ns", shown=False),
    ],
    "events as a table": [
        post(
            "/api/v1/namespaces/$ns/events",
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "namespace": "$ns", "name": "p"},
                "reason": "Started",
                "message": "it started",
                "type": "Normal",
                "count": 2,
                "firstTimestamp": "2026-01-01T00:00:00Z",
                "lastTimestamp": "2026-01-01T00:00:00Z",
                "source": {"component": "agent"},
            },
            shown=False,
        ),
        get("/api/v1/namespaces/$ns/events", accept=TABLE),
    ],
    "leases, secrets and service accounts as tables": [
        post(
            "/apis/coordination.k8s.io/v1/namespaces/$ns/leases",
            {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}},
            shown=False,
        ),
        get("/apis/coordination.k8s.io/v1/namespaces/$ns/leases", accept=TABLE),
        post("/api/v1/namespaces/$ns/secrets", {"metadata": {"name": "s"}}, shown=False),
        get("/api/v1/namespaces/$ns/secrets", accept=TABLE),
        get("/api/v1/namespaces/$ns/serviceaccounts", accept=TABLE),
    ],
    "custom resources as a table": [
        post(DEFINITIONS, definition(), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=TABLE),
        get(f"{WIDGETS}/a", accept=TABLE),
        get(f"{DEFINITIONS}/widgets.$ns.example.com", accept=TABLE),
    ],
    "custom resources without columns as a table": [
        post(DEFINITIONS, definition(additionalPrinterColumns=[]), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=TABLE),
    ],
    "an error is no table": [get(f"{CONFIG_MAPS}/none", accept=TABLE)],
    "metadata alone of one object": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}/a", accept=PARTIAL),
    ],
    "metadata alone of a list": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(CONFIG_MAPS, accept=PARTIAL_LIST),
    ],
    "metadata alone of custom resources": [
        post(DEFINITIONS, definition(), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=PARTIAL_LIST),
        get(f"{WIDGETS}/a", accept=PARTIAL),
    ],
    "a created object can come back as metadata or a table": [
        post(CONFIG_MAPS, config_map(), accept=PARTIAL),
        post(CONFIG_MAPS, config_map("b"), accept=TABLE),
        patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}, accept=PARTIAL),
    ],
    "a form that is not known is refused": [
        get(CONFIG_MAPS, accept="application/json;as=Nonsense;v=v1;g=meta.k8s.io"),
        get(CONFIG_MAPS, accept="text/html"),
        get(CONFIG_MAPS, accept="application/xml"),
    ],
    "anything acceptable is JSON": [
        get(CONFIG_MAPS, accept="*/*"),
        get(CONFIG_MAPS, accept="application/*"),
        get(CONFIG_MAPS, accept="text/html, */*;q=0.1"),
        get(CONFIG_MAPS, accept="application/json;charset=utf-8"),
    ],
    "an answer as YAML": [
        post(CONFIG_MAPS, config_map(labels={"a": "true", "b": "1"}), shown=False),
        get(f"{CONFIG_MAPS}/a", accept="application/yaml"),
        get(f"{CONFIG_MAPS}/none", accept="application/yaml"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_forms(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
