"""Fetches what pods refer to (ConfigMaps, Secrets, service account tokens) and writes it to their volumes.

The caches are read first. An object that is not in them is requested once from the API server, because a pod
may be bound before the watch has delivered an object that was created just before it.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.local import namespace_defaults
from argosy.local.node.environment import Sources
from argosy.local.node.pod_types import ConfigMap, Pod, Secret
from argosy.local.node.volumes import (
    ProjectedToken,
    is_written_by_agent,
    projected_tokens,
    render_files,
    validate_path_component,
    write_files,
)
from argosy.local.service_types import Service

_REFRESH_SECONDS = 3600.0


class _IssuedToken(NamedTuple):
    token: str
    renew_at: float


class _TokenSpec(msgspec.Struct, rename="camel"):
    expiration_seconds: int


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    spec: _TokenSpec
    status: _TokenStatus


class VolumeContent:
    def __init__(
        self, client: Client, config_maps: Cache[ConfigMap], secrets: Cache[Secret], authority: Path
    ) -> None:
        self._client = client
        self._config_maps = config_maps
        self._secrets = secrets
        self._authority = authority
        self._tokens: dict[tuple[str, str, str], _IssuedToken] = {}

    async def fetch_sources(
        self,
        pod: Pod,
        services: Iterable[Service],
        host_ip: str,
        pod_ip: str,
        allocatable: Mapping[str, Decimal],
    ) -> Sources:
        namespace = pod.metadata.namespace
        config_maps: dict[str, Mapping[str, bytes]] = {}
        secrets: dict[str, Mapping[str, bytes]] = {}
        config_map_names, secret_names = _references(pod)
        for name in config_map_names:
            held = self._config_maps.get(namespace, name) or await self._fetch(ConfigMap, namespace, name)
            if held is not None:
                config_maps[name] = held.content()
            elif name == namespace_defaults.CA_CONFIG_MAP and self._authority.exists():
                config_maps[name] = {"ca.crt": self._authority.read_bytes()}
        for name in secret_names:
            secret = self._secrets.get(namespace, name) or await self._fetch(Secret, namespace, name)
            if secret is not None:
                secrets[name] = secret.content()
        return Sources(
            config_map=config_maps.get,
            secret=secrets.get,
            services=list(services),
            node_name=pod.spec.node_name,
            host_ip=host_ip,
            pod_ip=pod_ip,
            node_allocatable=allocatable,
        )

    async def write_volumes(self, pod: Pod, folder: Path, sources: Sources) -> float:
        """Update all volumes with content; return the seconds until a token must be renewed."""
        renew_at = time.monotonic() + _REFRESH_SECONDS
        tokens: dict[str, dict[str, str]] = {}
        for wanted in projected_tokens(pod):
            issued = await self._token(pod, wanted)
            tokens.setdefault(wanted.volume, {})[wanted.projection.path] = issued.token
            renew_at = min(renew_at, issued.renew_at)
        stamp = datetime.now(UTC).strftime("%Y_%m_%d_%H_%M_%S.%f")
        for volume in pod.spec.volumes:
            if is_written_by_agent(volume):
                target = folder / "volumes" / validate_path_component(volume.name)
                files = render_files(pod, volume, sources, tokens.get(volume.name, {}))
                write_files(target, files, stamp, pod.spec.security_context.fs_group)
        return max(1.0, renew_at - time.monotonic())

    def forget_tokens(self, uid: str) -> None:
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    async def _token(self, pod: Pod, wanted: ProjectedToken) -> _IssuedToken:
        key = (pod.metadata.uid, wanted.volume, wanted.projection.path)
        held = self._tokens.get(key)
        if held and held.renew_at > time.monotonic():
            return held
        meta, account = pod.metadata, pod.spec.service_account_name or "default"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [wanted.projection.audience] if wanted.projection.audience else [],
                "expirationSeconds": wanted.projection.expiration_seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
            },
        }
        path = f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token"
        answer = msgspec.json.decode(await self._client.request("POST", path, body=body), type=_TokenRequest)
        # Counted from now on the monotonic clock: the wall clock may be set back.
        issued = _IssuedToken(answer.status.token, time.monotonic() + 0.8 * answer.spec.expiration_seconds)
        self._tokens[key] = issued
        return issued

    async def _fetch(
        self, kind: type[ConfigMap] | type[Secret], namespace: str, name: str
    ) -> ConfigMap | Secret | None:
        try:
            return await self._client.get(kind, name, namespace)
        except NotFound:
            return None


def _references(pod: Pod) -> tuple[set[str], set[str]]:
    """Return the names of the ConfigMaps and of the Secrets that a pod refers to."""
    config_maps = {volume.config_map.name for volume in pod.spec.volumes if volume.config_map}
    secrets = {volume.secret.secret_name for volume in pod.spec.volumes if volume.secret}
    for volume in pod.spec.volumes:
        for source in volume.projected.sources if volume.projected else []:
            config_maps |= {source.config_map.name} if source.config_map else set()
            secrets |= {source.secret.name} if source.secret else set()
    for container in pod.every_container:
        config_maps |= {entry.config_map_ref.name for entry in container.env_from if entry.config_map_ref}
        secrets |= {entry.secret_ref.name for entry in container.env_from if entry.secret_ref}
        for value in (variable.value_from for variable in container.env if variable.value_from):
            config_maps |= {value.config_map_key_ref.name} if value.config_map_key_ref else set()
            secrets |= {value.secret_key_ref.name} if value.secret_key_ref else set()
    return config_maps, secrets
