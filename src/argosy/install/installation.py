"""Installs, upgrades and uninstalls the operator on a cluster by server-side apply.

A ConfigMap holds the values that the user set and the list of objects, as a Helm release does. So `upgrade`
needs only changed values and deletes what is no longer part of the chart, and `uninstall` deletes nothing
else. CRDs are kept unless asked for, because deleting them deletes all jobs.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.dynamic import AnyObject, dynamic_kind
from argosy.engine.errors import AlreadyExists, NotFound
from argosy.install.chart import Chart, is_kept, merge_values
from argosy.kinds.crd_options import PART_OF, PART_OF_ARGOSY
from argosy.kinds.kubernetes import ConfigMap, Namespace
from argosy.kinds.meta import Json
from argosy.kinds.migration import GROUP as MIGRATION_GROUP
from argosy.kinds.resource import Resource
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration

MANIFEST_NAME: Final = "argosy-installation"
MANAGER: Final = "argosy-install"
"""The field manager of `argosy install`; the operator has another."""
TERMINATION_SECONDS: Final = 40.0
"""How long the operator's pods may take to end; longer than their grace period."""

Print = Callable[[str], None]

_RESOURCES: Final = (
    Resource("", "v1", "ConfigMap", "configmaps"),
    Resource("", "v1", "ServiceAccount", "serviceaccounts"),
    Resource("", "v1", "Service", "services"),
    MutatingWebhookConfiguration.resource,
    ValidatingWebhookConfiguration.resource,
    Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False),
    Resource("apps", "v1", "DaemonSet", "daemonsets"),
    Resource("apps", "v1", "Deployment", "deployments"),
    Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
)
KINDS: Final[Mapping[tuple[str, str], type[AnyObject]]] = {
    (resource.api_version, resource.kind): dynamic_kind(resource) for resource in _RESOURCES
}


FOREIGN_GROUPS: Final = frozenset({MIGRATION_GROUP})
"""Groups whose CRDs may belong to another operator that goes on running; such a CRD is left as it is."""


class InstallError(Exception):
    """The command cannot be done; the message says why, and what to do."""


class Reference(Struct, frozen=True, rename="camel"):
    """An object that belongs to an installation."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def to(cls, obj: Mapping[str, object]) -> "Reference":
        metadata = msgspec.convert(obj["metadata"], _Named)
        return cls(str(obj["apiVersion"]), str(obj["kind"]), metadata.name, metadata.namespace)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class _Named(Struct):
    name: str
    namespace: str = ""


class InstallManifest(Struct, frozen=True):
    """The contents of the installation's ConfigMap."""

    version: str
    values: Json
    objects: tuple[Reference, ...]


class Installation:
    """The operator in one namespace of a cluster. The client's field manager should be MANAGER."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        chart: Chart,
        print: Print,
        *,
        termination_seconds: float = TERMINATION_SECONDS,
        force: bool = False,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.chart = chart
        self.print = print
        self.termination_seconds = termination_seconds
        self.force = force
        """Replace also the CRDs of other operators that share them with us."""

    async def install(self, values: Json) -> None:
        """Install with these values instead of the chart's defaults."""
        if (manifest := await self.manifest()) is not None:
            raise InstallError(
                f"Argosy {manifest.version} is installed in namespace {self.namespace} already:"
                " argosy upgrade changes it"
            )
        objects = self.chart.objects(self.namespace, self.chart.values(values))
        await self._reject_helm_owned(objects)
        try:
            await self.client.create(Namespace, {"metadata": {"name": self.namespace}})
            self.print(f"Namespace {self.namespace} created")
        except AlreadyExists:
            pass
        await self._apply(values, objects, ())
        self._warn(values)

    async def install_crds(self, values: Json) -> None:
        """Install or upgrade the CRDs for these values, and nothing else."""
        objects = self.chart.objects(self.namespace, self.chart.values(values))
        for obj in await self._without_foreign_crds([obj for obj in objects if _is_crd(obj)]):
            reference = Reference.to(obj)
            await self.client.apply(_kind(reference), obj, force=True)
            self.print(f"{reference} applied")

    async def upgrade(self, changes: Json) -> None:
        """Change these values and keep all others."""
        manifest = await self._require_manifest()
        values = merge_values(manifest.values, changes)
        objects = self.chart.objects(self.namespace, self.chart.values(values))
        await self._apply(values, objects, manifest.objects)
        self._warn(values)

    def _warn(self, values: Json) -> None:
        if warning := self.chart.warnings(self.namespace, self.chart.values(values)):
            self.print(warning)

    async def uninstall(self, *, crds: bool = False) -> None:
        """Delete the installation; with `crds` also the CRDs, and all jobs with them.

        CRDs are deleted first, while the operator still runs and can react to the deletion of jobs. Then the
        operator, which needs its rights until it has stopped.
        """
        manifest = await self._require_manifest()
        objects = self.chart.objects(self.namespace, self.chart.values(manifest.values)) if crds else ()
        for reference in (Reference.to(obj) for obj in objects if is_kept(obj)):
            await self._delete(reference)
        for reference in manifest.objects:
            if reference.kind == "Deployment":
                await self._delete_and_wait(reference)
        for reference in reversed(manifest.objects):
            await self._delete(reference)
        await self.client.delete(ConfigMap, MANIFEST_NAME, self.namespace)

    async def manifest(self) -> InstallManifest | None:
        try:
            config_map = await self.client.get(ConfigMap, MANIFEST_NAME, self.namespace)
        except NotFound:
            return None
        return msgspec.json.decode(config_map.data["installation"], type=InstallManifest)

    async def wait(self, seconds: float) -> None:
        """Wait until all replicas have this version and are ready."""
        manifest, progress = await self._require_manifest(), ""
        names = [reference.name for reference in manifest.objects if reference.kind == "Deployment"]
        try:
            async with asyncio.timeout(seconds):
                while not (rollout := await self._rolled_out(names)).done:
                    if str(rollout) != progress:
                        progress = str(rollout)
                        self.print(progress)
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise InstallError(
                f"not ready within {seconds:g} s: {progress};"
                f" kubectl -n {self.namespace} describe pods -l app.kubernetes.io/name=argosy says more"
            ) from None
        self.print(str(rollout))

    async def _rolled_out(self, names: Sequence[str]) -> "Rollout":
        """Return the sum over all Deployments."""
        kind = KINDS["apps/v1", "Deployment"]
        rollouts = [_rollout((await self.client.get(kind, name, self.namespace)).raw) for name in names]
        return Rollout(
            sum(rollout.desired for rollout in rollouts),
            sum(rollout.updated for rollout in rollouts),
            sum(rollout.ready for rollout in rollouts),
            sum(rollout.total for rollout in rollouts),
            all(rollout.observed for rollout in rollouts),
        )

    async def _require_manifest(self) -> InstallManifest:
        manifest = await self.manifest()
        if manifest is None:
            raise InstallError(
                f"nothing is installed in namespace {self.namespace} by argosy install"
                " (an installation by Helm is changed by helm); -n names another"
            )
        return manifest

    async def _reject_helm_owned(self, objects: Iterable[Json]) -> None:
        """Raise InstallError if an object belongs to a Helm release, which would undo our changes.

        CRDs that an uninstalled release left behind belong to no release.
        """
        for reference in (Reference.to(obj) for obj in objects if not is_kept(obj)):
            try:
                existing = await self.client.get(
                    _kind(reference), reference.name, reference.namespace or None
                )
            except NotFound:
                continue
            if release := existing.metadata.annotations.get("meta.helm.sh/release-name"):
                raise InstallError(
                    f"{reference} belongs to the Helm release {release}: helm upgrade changes it,"
                    " helm uninstall removes it"
                )

    async def _apply(self, values: Json, objects: Sequence[Json], before: Sequence[Reference]) -> None:
        objects = await self._without_foreign_crds(objects)
        references = tuple(map(Reference.to, objects))
        # The manifest is written first, so that an interrupted installation can be upgraded or uninstalled.
        obsolete = tuple(reference for reference in before if reference not in references)
        await self._write_manifest(values, (*references, *obsolete), objects)
        for reference, obj in zip(references, objects, strict=True):
            await self.client.apply(_kind(reference), obj, reference.namespace or None, force=True)
            self.print(f"{reference} applied")
        for reference in obsolete:
            await self._delete(reference)
        await self._write_manifest(values, references, objects)

    async def _without_foreign_crds(self, objects: Sequence[Json]) -> Sequence[Json]:
        """Leave out CRDs that another operator has installed and goes on using, unless forced."""
        kept: list[Json] = []
        for obj in objects:
            reference = Reference.to(obj)
            if not _is_crd(obj) or self.force or reference.name.partition(".")[2] not in FOREIGN_GROUPS:
                kept.append(obj)
                continue
            try:
                existing = await self.client.get(_kind(reference), reference.name)
            except NotFound:
                kept.append(obj)
                continue
            if existing.metadata.labels.get(PART_OF) == PART_OF_ARGOSY:
                kept.append(obj)
            else:
                self.print(f"{reference} left as it is: Argosy has not made it; --force replaces it")
        return kept

    async def _write_manifest(
        self, values: Json, references: Sequence[Reference], objects: Sequence[Json]
    ) -> None:
        kept = {Reference.to(obj) for obj in objects if is_kept(obj)}
        removable = tuple(reference for reference in references if reference not in kept)
        text = msgspec.json.encode(InstallManifest(self.chart.info.app_version, values, removable)).decode()
        body = {"metadata": {"name": MANIFEST_NAME}, "data": {"installation": text}}
        await self.client.apply(ConfigMap, body, self.namespace, force=True)

    async def _delete_and_wait(self, reference: Reference) -> None:
        """Delete an object, and wait until it and its pods are deleted."""
        await self._delete(reference, propagation="Foreground")
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(self.termination_seconds):
                while True:
                    await self.client.get(_kind(reference), reference.name, reference.namespace or None)
                    await asyncio.sleep(0.2)

    async def _delete(self, reference: Reference, propagation: str = "Background") -> None:
        namespace = reference.namespace or None
        try:
            await self.client.delete(_kind(reference), reference.name, namespace, propagation=propagation)
        except NotFound:
            return
        self.print(f"{reference} deleted")


class Rollout(Struct, frozen=True):
    """The progress of one or several Deployments."""

    desired: int
    updated: int
    ready: int
    total: int
    observed: bool

    @property
    def done(self) -> bool:
        return self.observed and self.updated == self.ready == self.total == self.desired

    def __str__(self) -> str:
        return f"{min(self.updated, self.ready)} of {self.desired} replicas ready"


class _Metadata(Struct):
    generation: int = 0


class _Spec(Struct):
    replicas: int = 1


class _Status(Struct, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0


class _Deployment(Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


def _rollout(deployment: Json) -> Rollout:
    decoded = msgspec.convert(deployment, _Deployment)
    status = decoded.status
    return Rollout(
        desired=decoded.spec.replicas,
        updated=status.updated_replicas,
        ready=status.ready_replicas,
        total=status.replicas,
        observed=status.observed_generation >= decoded.metadata.generation,
    )


def _is_crd(obj: Mapping[str, object]) -> bool:
    return obj["kind"] == "CustomResourceDefinition"


def _kind(reference: Reference) -> type[AnyObject]:
    return KINDS[reference.api_version, reference.kind]
