"""Pod fields that lead to files of the node: volumes, mounts and kernel parameters, valid and invalid."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from argosy.local.schema.unstructured import get_map
from tests.support.differential import Step, patch, post
from tests.support.manifests import DEPLOYMENTS, PODS, pod

BAD_PATHS = ("", "/a", "../a", "a/../b", "..", "..a", "a/..", "./a", "a//b", ".", "a..b")
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}


def volumes(*sources: Mapping[str, object]) -> Step:
    named = [{"name": f"v{index}", **source} for index, source in enumerate(sources)]
    return post(f"{PODS}?dryRun=All", pod(volumes=named))


def mounted(*mounts: Mapping[str, object], **container: object) -> Step:
    named = [{"name": "v", "mountPath": f"/m{index}", **mount} for index, mount in enumerate(mounts)]
    body = pod(container={"volumeMounts": named, **container}, volumes=[{"name": "v", "emptyDir": {}}])
    return post(f"{PODS}?dryRun=All", body)


def contained(**container: object) -> Step:
    return post(f"{PODS}?dryRun=All", pod(container=container))


def sysctls(*names: str, **spec: bool) -> Step:
    settings = [{"name": name, "value": "1"} for name in names]
    return post(f"{PODS}?dryRun=All", _with_spec(spec, securityContext={"sysctls": settings}))


def _with_spec(more: Mapping[str, object], **spec: object) -> dict[str, object]:
    body = pod(**spec)  # type: ignore[arg-type]
    return {**body, "spec": {**get_map(body, "spec"), **more}}


def projected(*sources: Mapping[str, object]) -> dict[str, object]:
    return {"projected": {"sources": list(sources)}}


CASES: dict[str, list[Step]] = {
    "valid and invalid item paths of a configMap volume: as kube-apiserver": [
        volumes({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}) for path in BAD_PATHS
    ],
    "valid and invalid item paths of a secret volume: as kube-apiserver": [
        volumes({"secret": {"secretName": "s", "items": [{"key": "k", "path": path}]}}) for path in BAD_PATHS
    ],
    "valid and invalid item paths of a downwardAPI volume: as kube-apiserver": [
        volumes({"downwardAPI": {"items": [{"path": path, **NAME}]}}) for path in BAD_PATHS
    ],
    "valid and invalid item paths of a projected volume: as kube-apiserver": [
        volumes(
            projected(
                {"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}},
                {"secret": {"name": "s", "items": [{"key": "k", "path": f"{path}x"}]}},
                {"downwardAPI": {"items": [{"path": f"{path}y", **NAME}]}},
            )
        )
        for path in BAD_PATHS
    ],
    "valid and invalid paths of a projected token: as kube-apiserver": [
        volumes(projected({"serviceAccountToken": {"path": path}})) for path in BAD_PATHS
    ],
    "valid and invalid sources of downwardAPI items: as kube-apiserver": [
        volumes({"downwardAPI": {"items": [{"path": "a"}]}}),
        volumes(
            {
                "downwardAPI": {
                    "items": [{"path": "a", **NAME, "resourceFieldRef": {"resource": "limits.cpu"}}]
                }
            }
        ),
        volumes({"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
        volumes(
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "a",
                            "resourceFieldRef": {
                                "resource": "limits.cpu",
                                "containerName": "main",
                                "divisor": "1",
                            },
                        }
                    ]
                }
            }
        ),
        volumes(
            {
                "downwardAPI": {
                    "items": [{"path": "a", "resourceFieldRef": {"resource": "x", "containerName": "main"}}]
                }
            }
        ),
        volumes({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "status.podIP"}}]}}),
        volumes({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
        volumes(
            {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}}
        ),
        volumes({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "spec.none"}}]}}),
        volumes({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": ""}}]}}),
    ],
    "invalid projected source: rejected": [
        volumes(projected({"configMap": {"name": "c"}, "secret": {"name": "s"}})),
        volumes(projected({"configMap": {}}, {"secret": {}})),
        volumes(projected({"serviceAccountToken": {"path": "t", "expirationSeconds": 10}})),
        volumes(projected({"serviceAccountToken": {"path": "t", "expirationSeconds": 1 << 33}})),
    ],
    "two projected items with the same path: rejected": [
        volumes(
            projected(
                {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
                {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
            )
        ),
        volumes(
            projected(
                {"downwardAPI": {"items": [{"path": "a", **NAME}]}},
                {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
            )
        ),
    ],
    "invalid file modes: rejected": [
        volumes({"configMap": {"name": "c", "defaultMode": 0o1000}}),
        volumes({"secret": {"secretName": "s", "defaultMode": -1}}),
        volumes({"downwardAPI": {"defaultMode": 512, "items": []}}),
        volumes({"projected": {"defaultMode": 512, "sources": []}}),
        volumes({"configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 512}]}}),
        volumes({"downwardAPI": {"items": [{"path": "p", "mode": -1, **NAME}]}}),
    ],
    "valid and invalid claim names: as kube-apiserver": [
        volumes({"persistentVolumeClaim": {"claimName": name}})
        for name in ("", "good", "../../etc", "/etc", "Bad", "a.b")
    ],
    "valid and invalid paths and types of hostPath: as kube-apiserver": [
        volumes({"hostPath": {"path": ""}}),
        volumes({"hostPath": {"path": "relative"}}),
        volumes({"hostPath": {"path": "/a/../b"}}),
        volumes({"hostPath": {"path": "/a..b"}}),
        volumes({"hostPath": {"path": "/a", "type": "Folder"}}),
        volumes({"hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}),
    ],
    "valid and invalid sizeLimit of emptyDir: as kube-apiserver": [
        volumes({"emptyDir": {"sizeLimit": "-1"}}),
        volumes({"emptyDir": {"sizeLimit": "0"}}),
        volumes({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}),
    ],
    "valid and invalid mountPath: as kube-apiserver": [
        mounted({"mountPath": ""}),
        mounted({"mountPath": "relative"}),
        mounted({"mountPath": "/a/../b"}),
        mounted({"mountPath": "/a:b"}),
        mounted({"mountPath": "/same"}, {"mountPath": "/same"}),
    ],
    "valid and invalid subPath and subPathExpr: as kube-apiserver": [
        *(mounted({"subPath": path}) for path in BAD_PATHS),
        *(mounted({"subPathExpr": path}) for path in BAD_PATHS),
        mounted({"subPath": "a", "subPathExpr": "$(B)"}),
    ],
    "valid and invalid terminationMessagePath: as kube-apiserver": [
        contained(terminationMessagePath="/dev/../x"),
        contained(terminationMessagePath="relative"),
        contained(terminationMessagePath=""),
        contained(terminationMessagePolicy="Always"),
    ],
    "valid and invalid sysctl names: as kube-apiserver": [
        sysctls("kernel.shm_rmid_forced"),
        sysctls("net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
        sysctls("kernel.core_pattern"),
        sysctls("net/ipv4/tcp_syncookies"),
        sysctls(""),
        sysctls("/etc/crontab"),
        sysctls("../../etc/crontab"),
        sysctls("a..b"),
        sysctls("Kernel.x"),
        sysctls("kernel.-x"),
        sysctls("a" * 254),
        sysctls("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
        sysctls("net.ipv4.tcp_syncookies", "net/ipv4/tcp_syncookies"),
    ],
    "sysctl of a namespace shared with the host: rejected": [
        sysctls("net.ipv4.tcp_syncookies", hostNetwork=True),
        sysctls("kernel.shm_rmid_forced", hostIPC=True),
        sysctls("kernel.shm_rmid_forced", hostNetwork=True),
    ],
    "ephemeral containers in a create or update: rejected": [
        post(PODS, pod(ephemeralContainers=[{"name": "e", "image": "i"}])),
        post(PODS, pod(), shown=False),
        patch(f"{PODS}/a", {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}),
    ],
    "pod template of a Deployment with invalid paths: rejected": [
        post(
            DEPLOYMENTS,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "a"},
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {
                            "containers": [{"name": "c", "image": "i"}],
                            "ephemeralContainers": [{"name": "e", "image": "i"}],
                            "securityContext": {"sysctls": [{"name": "/etc/x", "value": ""}]},
                            "volumes": [{"name": "v", "downwardAPI": {"items": [{"path": "../a", **NAME}]}}],
                        },
                    },
                },
            },
        ),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_pod_paths(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
