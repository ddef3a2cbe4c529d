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
    "ConfigMaps as a table: columns of kube-apiserver": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(CONFIG_MAPS, accept=TABLE),
    ],
    "one object as a table: one row": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}/a", accept=TABLE),
    ],
    "empty list as a table: no rows": [get(CONFIG_MAPS, accept=TABLE)],
    "table with includeObject=Object: rows with whole objects": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}?includeObject=Object", accept=TABLE),
    ],
    "table with includeObject=None: rows without objects": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}?includeObject=None", accept=TABLE),
        get(f"{CONFIG_MAPS}?includeObject=Nonsense", accept=TABLE),
    ],
    "pod without a node as a table: Pending": [post(PODS, pod(), shown=False), get(PODS, accept=TABLE)],
    "running pod as a table: Running": pod_row(RUNNING),
    "pod without its image as a table: reason of the container": pod_row(waiting("ImagePullBackOff")),
    "failed pod as a table: reason of the container": pod_row(terminated(exitCode=3, reason="Error")),
    "pod killed by a signal as a table: the signal": pod_row(terminated(exitCode=137, signal=9)),
    "failed pod without a reason as a table: the exit code": pod_row(terminated(exitCode=2)),
    "succeeded pod as a table: Completed": pod_row(
        {**terminated(exitCode=0, reason="Completed"), "phase": "Succeeded"}
    ),
    "evicted pod as a table: reason of the pod": pod_row({"phase": "Failed", "reason": "Evicted"}),
    "terminating pod as a table: Terminating": [
        post(PODS, pod(nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": RUNNING}, shown=False),
        delete(f"{PODS}/a", shown=False),
        get(PODS, accept=TABLE),
    ],
    "pod with a running init container as a table: number of completed ones": [
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
    "Services as a table: columns of kube-apiserver": [
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
    "Namespace as a table: columns of kube-apiserver": [get(f"{NAMESPACES}/$ns", accept=TABLE)],
    "Jobs as a table: columns of kube-apiserver": [
        post(JOBS, job(), shown=False),
        post(JOBS, job("b", completions=3, parallelism=2), shown=False),
        get(JOBS, accept=TABLE),
    ],
    "Deployments as a table: columns of kube-apiserver": [
        post(DEPLOYMENTS, deployment(replicas=2), shown=False),
        get(DEPLOYMENTS, accept=TABLE),
    ],
    "Node as a table: columns of kube-apiserver": [
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
    "Events as a table: columns of kube-apiserver": [
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
    "Leases, Secrets and ServiceAccounts as tables: columns of kube-apiserver": [
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
    "custom resources as a table: additionalPrinterColumns": [
        post(DEFINITIONS, definition(), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=TABLE),
        get(f"{WIDGETS}/a", accept=TABLE),
        get(f"{DEFINITIONS}/widgets.$ns.example.com", accept=TABLE),
    ],
    "custom resources without additionalPrinterColumns as a table: name and age": [
        post(DEFINITIONS, definition(additionalPrinterColumns=[]), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=TABLE),
    ],
    "error with Accept of a table: a Status": [get(f"{CONFIG_MAPS}/none", accept=TABLE)],
    "one object as PartialObjectMetadata: metadata only": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}/a", accept=PARTIAL),
    ],
    "list as PartialObjectMetadataList: metadata only": [
        post(CONFIG_MAPS, config_map(), shown=False),
        get(CONFIG_MAPS, accept=PARTIAL_LIST),
    ],
    "custom resources as PartialObjectMetadata: metadata only": [
        post(DEFINITIONS, definition(), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        post(WIDGETS, widget(), shown=False),
        get(WIDGETS, accept=PARTIAL_LIST),
        get(f"{WIDGETS}/a", accept=PARTIAL),
    ],
    "create and patch with Accept of metadata or a table: response in that form": [
        post(CONFIG_MAPS, config_map(), accept=PARTIAL),
        post(CONFIG_MAPS, config_map("b"), accept=TABLE),
        patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}, accept=PARTIAL),
    ],
    "unknown form in Accept: 406": [
        get(CONFIG_MAPS, accept="application/json;as=Nonsense;v=v1;g=meta.k8s.io"),
        get(CONFIG_MAPS, accept="text/html"),
        get(CONFIG_MAPS, accept="application/xml"),
    ],
    "Accept */* or JSON with a charset: JSON, application/*: 406": [
        get(CONFIG_MAPS, accept="*/*"),
        get(CONFIG_MAPS, accept="application/*"),
        get(CONFIG_MAPS, accept="text/html, */*;q=0.1"),
        get(CONFIG_MAPS, accept="application/json;charset=utf-8"),
    ],
    "Accept YAML: objects and errors as YAML": [
        post(CONFIG_MAPS, config_map(labels={"a": "true", "b": "1"}), shown=False),
        get(f"{CONFIG_MAPS}/a", accept="application/yaml"),
        get(f"{CONFIG_MAPS}/none", accept="application/yaml"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_forms(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
