"""Describes the installation to the renderer: where the endpoint is, and how the helper's container runs.

The helper's container satisfies the *restricted* pod security standard, so that a namespace which enforces it
can run every framework; it has requests and limits, so that a namespace with a quota can too.
"""

from collections.abc import Sequence

from msgspec import Struct

HELPER_CPU = {"requests": "10m", "limits": "500m"}
HELPER_MEMORY = {"requests": "32Mi", "limits": "128Mi"}
PUBLISHER_CPU = {"requests": "10m", "limits": "2"}
PUBLISHER_MEMORY = {"requests": "64Mi", "limits": "1Gi"}
"""Of helper containers that send checkpoints to an object store, or get them from there."""


class Helper(Struct, frozen=True):
    image: str
    command: tuple[str, ...] = ("python3", "-m", "argosy.helper")
    store_command: tuple[str, ...] = ("python3", "-m", "argosy.checkpoint.sidecar")
    """The program for checkpoints in object stores."""
    mounts: tuple[str, ...] = ()
    """Folders of the node that helper containers see under the same path, read-only: needed only where the
    image is the node's own root with parts of it hidden (the local control plane)."""
    user: int | None = 65532
    kubectl: str = ""
    """The kubectl to copy for remote exec; empty: the one on the image's PATH."""


class Features(Struct, frozen=True):
    """Features that few jobs need and administrators turn on; the chart grants rights accordingly."""

    remote_exec: bool = True
    """Accounts and roles by which launchers start processes in other pods of their job."""
    ssh_keys: bool = True
    """A Secret with a key pair for each job that starts processes by ssh."""


class RenderContext(Struct, frozen=True):
    helper: Helper
    url: str
    ca_pem: str = ""
    """The CA of the endpoint, in PEM."""
    cluster_domain: str = "cluster.local"
    features: Features = Features()


def helper_container(
    site: RenderContext,
    name: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    mounts: Sequence[dict[str, object]] = (),
) -> dict[str, object]:
    helper = site.helper
    security: dict[str, object] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if helper.user is None:
        del security["runAsNonRoot"]
    else:
        security["runAsUser"] = helper.user
    folders = [
        {"name": volume_name(index), "mountPath": path, "readOnly": True}
        for index, path in enumerate(helper.mounts)
    ]
    return {
        "name": name,
        "image": helper.image,
        "command": [*helper.command, *arguments],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": {
            bound: {"cpu": HELPER_CPU[bound], "memory": HELPER_MEMORY[bound]}
            for bound in ("requests", "limits")
        },
        "securityContext": security,
        "volumeMounts": [*mounts, *folders],
    }


def helper_volumes(site: RenderContext) -> list[dict[str, object]]:
    return [
        {"name": volume_name(index), "hostPath": {"path": path}}
        for index, path in enumerate(site.helper.mounts)
    ]


def volume_name(index: int) -> str:
    return f"argosy-helper-{index}"
