"""Jobs, users and CRDs for fault tests of an operator on a real API server."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from argosy.engine.client import Client
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError, NotFound
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.resource import Resource
from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.support.builders import RunBuilder, pod_template, run
from tests.support.operator_harness import Scene
from tests.support.servers import TokenUser
from tests.support.simulator import RUN_SECONDS
from tests.support.waiting import until

CRD = "trainingruns.argosy.dev"
BINDING = dynamic_kind(
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False)
)
FLOW = "flowcontrol.apiserver.k8s.io"
LEVEL = dynamic_kind(Resource(FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", False))
SCHEMA = dynamic_kind(Resource(FLOW, "v1", "FlowSchema", "flowschemas", False))


async def install_crd(client: Client, definition: Mapping[str, object]) -> None:
    """Install our CRD, or another in its place, and wait until it is established."""
    with contextlib.suppress(NotFound):
        await client.delete(CustomResourceDefinition, CRD)

    async def gone() -> bool:
        try:
            await client.get(CustomResourceDefinition, CRD)
        except NotFound:
            return True
        return False

    await until(gone, "the definition is gone")
    await client.create(CustomResourceDefinition, dict(definition))
    spec = cast("Mapping[str, object]", definition["spec"])
    versions = cast("Sequence[Mapping[str, object]]", spec["versions"])
    await wait_until_served(client, str(versions[0]["name"]))


async def wait_until_served(client: Client, version: str) -> None:
    """Wait until TrainingRuns of this version are served."""
    kind = dynamic_kind(Resource("argosy.dev", version, "TrainingRun", "trainingruns"))

    async def listed() -> bool:
        try:
            await client.list(kind, "default")
        except ApiError:
            return False
        return True

    await until(listed, "the definition is served")


def short_job(name: str, workers: int = 2) -> RunBuilder:
    """A job that succeeds soon after its start."""
    template = {"metadata": {"annotations": {RUN_SECONDS: "0.5"}}, **pod_template()}
    return run(name).role("worker", workers, restart="OnFailure", template=template)


def endless_job(name: str) -> RunBuilder:
    return run(name).role("worker", 2, restart="OnFailure")


async def wait_until_succeeded(scene: Scene, *names: str) -> None:
    """Wait until all these jobs have succeeded without a restart."""
    for name in names:
        done = await scene.until_phase("Succeeded", name)
        assert done.status.restarts == 0


async def wait_until_running(scene: Scene, name: str) -> set[str]:
    """Wait until a job runs; returns the uids of its pods."""
    await scene.until_phase("Running", name)
    return {pod.metadata.uid for pod in (await scene.pods()).values() if pod.metadata.name.startswith(name)}


async def grant_all_rights(scene: Scene, user: TokenUser) -> Path:
    """The kubeconfig of an administrator whose requests the API server may throttle."""
    subject = {"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}
    await bind(scene.client, f"all-for-{user.name}", subject)
    path = scene.server.folder / f"kubeconfig-{user.name}"
    write_kubeconfig(path, scene.server.url, scene.server.ca_file, user.token)
    return path


async def bind(client: Client, name: str, subject: Mapping[str, str]) -> None:
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    await client.apply(BINDING, body, force=True)


async def count_responses(port: int, code: str) -> float:
    """The number of responses with this code that the operator received."""
    client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        text = (await client.send("GET", "/metrics", {})).body.decode()
    except ConnectionError:
        return 0.0
    finally:
        await client.close()
    lines = [
        line for line in text.splitlines() if line.startswith(f'argosy_api_requests_total{{code="{code}"')
    ]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


ANYTHING: dict[str, object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def foreign_crd(
    *, version: str = "v1alpha1", status: object = None, spec: object = ANYTHING
) -> dict[str, object]:
    """A CRD of the same name as ours that belongs to another project."""
    properties = {"spec": spec, "status": {"type": "object"} if status is None else status}
    version_entry: dict[str, object] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    if status is not None:
        version_entry["subresources"] = {"status": {}}
    names = {"kind": "TrainingRun", "plural": "trainingruns", "singular": "trainingrun"}
    return {
        "metadata": {"name": CRD},
        "spec": {"group": "argosy.dev", "names": names, "scope": "Namespaced", "versions": [version_entry]},
    }
