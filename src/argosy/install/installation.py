"""An installation on a cluster: made, changed and taken away by server-side apply, remembered in a ConfigMap.

The ConfigMap holds the values that were given and the list of objects, as a Helm release does: so `upgrade`
needs only what changes, removes what is no longer part of the chart, and `uninstall` touches nothing else.
Definitions of kinds stay, for with them every job would go; nothing else does.
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
from argosy.kinds.kubernetes import ConfigMap, Namespace
from argosy.kinds.meta import Json
from argosy.kinds.resource import Resource
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration

MANIFEST_NAME: Final = "argosy-installation"
MANAGER: Final = "argosy-install"
"""The field manager; not the operator's own."""
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


class InstallError(Exception):
    """What was asked for cannot be done; the message says why, and what to do."""


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
    """What an installation remembers of itself."""

    version: str
    values: Json
    objects: tuple[Reference, ...]


class Installation:
    """The operator in one namespace of a cluster. The client should have MANAGER as its field manager."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        chart: Chart,
        print: Print,
        *,
        termination_seconds: float = TERMINATION_SECONDS,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.chart = chart
        self.print = print
        self.termination_seconds = termination_seconds

    async def install(self, given: Json) -> None:
        if (notes := await self.manifest()) is not None:
            raise InstallError(
                f"Argosy {notes.version} is installed in namespace {self.namespace} already:"
                " argosy upgrade changes it"
            )
        objects = self.chart.objects(self.namespace, self.chart.values(given))
        await self._reject_helm_owned(objects)
        try:
            await self.client.create(Namespace, {"metadata": {"name": self.namespace}})
            self.print(f"Namespace {self.namespace} created")
        except AlreadyExists:
            pass
        await self._apply(given, objects, ())
        self._warn(given)

    async def upgrade(self, changes: Json) -> None:
        """Change the given values and keep all others."""
        notes = await self._require_manifest()
        given = merge_values(notes.values, changes)
        await self._apply(given, self.chart.objects(self.namespace, self.chart.values(given)), notes.objects)
        self._warn(given)

    def _warn(self, given: Json) -> None:
        if warning := self.chart.warnings(self.namespace, self.chart.values(given)):
            self.print(warning)

    async def uninstall(self, *, crds: bool = False) -> None:
        """The operator itself first, so that it ends in order while it still has its rights. Before it the
        definitions, if they are to go: then it lets their jobs go."""
        notes = await self._require_manifest()
        objects = self.chart.objects(self.namespace, self.chart.values(notes.values)) if crds else ()
        for reference in (Reference.to(one) for one in objects if is_kept(one)):
            await self._delete(reference)
        for reference in notes.objects:
            if reference.kind == "Deployment":
                await self._delete_and_wait(reference)
        for reference in reversed(notes.objects):
            await self._delete(reference)
        await self.client.delete(ConfigMap, MANIFEST_NAME, self.namespace)

    async def manifest(self) -> InstallManifest | None:
        try:
            found = await self.client.get(ConfigMap, MANIFEST_NAME, self.namespace)
        except NotFound:
            return None
        return msgspec.json.decode(found.data["installation"], type=InstallManifest)

    async def wait(self, seconds: float) -> None:
        """Until all replicas are of this version, and ready."""
        notes, progress = await self._require_manifest(), ""
        names = [one.name for one in notes.objects if one.kind == "Deployment"]
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
        """All Deployments together."""
        kind = KINDS["apps/v1", "Deployment"]
        found = [_rollout((await self.client.get(kind, name, self.namespace)).raw) for name in names]
        return Rollout(
            sum(one.desired for one in found),
            sum(one.updated for one in found),
            sum(one.ready for one in found),
            sum(one.total for one in found),
            all(one.observed for one in found),
        )

    async def _require_manifest(self) -> InstallManifest:
        notes = await self.manifest()
        if notes is None:
            raise InstallError(
                f"nothing is installed in namespace {self.namespace} by argosy install"
                " (an installation by Helm is changed by helm); -n names another"
            )
        return notes

    async def _reject_helm_owned(self, objects: Iterable[Json]) -> None:
        """Two who each think that an object is theirs would undo each other's changes.

        What a release left behind when it was uninstalled is nobody's.
        """
        for reference in (Reference.to(one) for one in objects if not is_kept(one)):
            try:
                found = await self.client.get(_kind(reference), reference.name, reference.namespace or None)
            except NotFound:
                continue
            if release := found.metadata.annotations.get("meta.helm.sh/release-name"):
                raise InstallError(
                    f"{reference} belongs to the Helm release {release}: helm upgrade changes it,"
                    " helm uninstall takes it away"
                )

    async def _apply(self, given: Json, objects: Sequence[Json], before: Sequence[Reference]) -> None:
        references = tuple(map(Reference.to, objects))
        # Noted first: what was begun and not ended can be upgraded, or taken away.
        gone = tuple(one for one in before if one not in references)
        await self._write_manifest(given, (*references, *gone), objects)
        for reference, obj in zip(references, objects, strict=True):
            await self.client.apply(_kind(reference), obj, reference.namespace or None, force=True)
            self.print(f"{reference} applied")
        for reference in gone:
            await self._delete(reference)
        await self._write_manifest(given, references, objects)

    async def _write_manifest(
        self, given: Json, references: Sequence[Reference], objects: Sequence[Json]
    ) -> None:
        keep = {Reference.to(obj) for obj in objects if is_kept(obj)}
        ours = tuple(one for one in references if one not in keep)
        text = msgspec.json.encode(InstallManifest(self.chart.info.app_version, given, ours)).decode()
        body = {"metadata": {"name": MANIFEST_NAME}, "data": {"installation": text}}
        await self.client.apply(ConfigMap, body, self.namespace, force=True)

    async def _delete_and_wait(self, reference: Reference) -> None:
        """Delete an object, and wait until it is gone with its pods."""
        await self._delete(reference, propagation="Foreground")
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(self.termination_seconds):
                while True:
                    await self.client.get(_kind(reference), reference.name, reference.namespace or None)
                    await asyncio.sleep(0.2)

    async def _delete(self, reference: Reference, propagation: str = "Background") -> None:
        place = reference.namespace or None
        try:
            await self.client.delete(_kind(reference), reference.name, place, propagation=propagation)
        except NotFound:
            return
        self.print(f"{reference} deleted")


class Rollout(Struct, frozen=True):
    """How far a Deployment has come."""

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
    found = msgspec.convert(deployment, _Deployment)
    status = found.status
    seen = status.observed_generation >= found.metadata.generation
    return Rollout(found.spec.replicas, status.updated_replicas, status.ready_replicas, status.replicas, seen)


def _kind(reference: Reference) -> type[AnyObject]:
    return KINDS[reference.api_version, reference.kind]
