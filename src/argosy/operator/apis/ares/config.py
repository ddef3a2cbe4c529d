"""The file that AresOperator's administrators know (`--config`): other names for settings of ours.

Read strictly: a key that nobody knows, or a value that cannot be, stops the start with a message that names
the key. The table in `docs/administrators/operator.md` has the defaults; null counts as left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

import msgspec
import yaml
from msgspec import Struct

from argosy.dialects.ares.initializers import Initializers, ShellCommand
from argosy.engine.limiter import WriteLimits
from argosy.gotemplate import TemplateError
from argosy.operator.apis.ares.observer_locator import ObserverService
from argosy.operator.settings import Settings
from argosy.workload.gang_schedulers.registry import CHOICES
from argosy.workload.gang_schedulers.volcano import VOLCANO

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_NAME}(\.{_NAME})*")
_SERVICE = re.compile(rf"{_NAME}(\.{_NAME})+(:\d+)?")
_CONVERSION_ERROR = re.compile(r"(?P<said>.*) - at `\$\.?(?P<where>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


class ConfigError(Exception):
    """Everything that is wrong with a file, by keys."""


class _Section(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class _Observer(_Section, frozen=True):
    enabled: bool = True
    service: str = ObserverService().service
    node_port: int = 0
    namespace: str = ObserverService().namespace
    labels: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(ObserverService().labels))
    auth: Literal["token", "none"] = "token"


class _Cache(_Section, frozen=True):
    uri: str = "memory://"
    observer: _Observer = _Observer()


class _Rest(_Section, frozen=True):
    qps: float = 30.0
    burst: int = 60


class _AresJob(_Section, frozen=True):
    ttl_seconds_after_succeeded: int | None = None


class _Gang(_Section, frozen=True):
    backend: str = VOLCANO.name


class _Operator(_Section, frozen=True):
    rest_config: _Rest | None = None
    aresjob: _AresJob = _AresJob()
    cluster_domain: str = "cluster.local"
    gang: _Gang = _Gang()


class _Volume(_Section, frozen=True):
    name: str = ""
    host_path: str = ""


class _Initializer(_Section, frozen=True):
    image: str | None = None
    cmd: str = ""
    envs: Mapping[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    volumes: tuple[_Volume, ...] = ()


class _Initializers(_Section, frozen=True):
    common: _Initializer = _Initializer()


class Config(_Section, frozen=True):
    cache: _Cache = _Cache()
    operator: _Operator = _Operator()
    initializers: _Initializers = _Initializers()


def read(text: str) -> Config:
    """`ConfigError` if it cannot be used."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None
    try:
        config = msgspec.convert(_without_nulls(content) or {}, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_conversion_error(str(error))) from None
    if wrong := list(_problems(config)):
        raise ConfigError("; ".join(wrong))
    return config


def apply_config(settings: Settings, config: Config) -> Settings:
    """The settings as the file has them."""
    observer, operator, common = config.cache.observer, config.operator, config.initializers.common
    observers = ObserverService(
        service=observer.service,
        node_port=max(observer.node_port, 0),
        namespace=observer.namespace,
        labels=observer.labels,
        require_tokens=observer.auth == "token",
    )
    rest = operator.rest_config
    return replace(
        settings,
        observer_service=observers if observer.enabled else None,
        require_observer_tokens=observers.require_tokens,
        write_limits=WriteLimits(per_second=rest.qps, burst=rest.burst) if rest else WriteLimits(),
        ares_ttl_after_succeeded=operator.aresjob.ttl_seconds_after_succeeded,
        cluster_domain=operator.cluster_domain,
        gang_backend=operator.gang.backend,
        initializers=Initializers(
            image=common.image or "",
            command=ShellCommand(common.cmd) if common.cmd else None,
            env={name: _text(value) for name, value in common.envs.items()},
            volumes={one.name: one.host_path for one in common.volumes},
        ),
    )


def _problems(config: Config) -> Iterator[str]:
    yield from _cache_problems(config.cache)
    rest, succeeded = config.operator.rest_config, config.operator.aresjob.ttl_seconds_after_succeeded
    if rest and rest.qps <= 0:
        yield f"operator.restConfig.qps: invalid value {rest.qps:g}: must be more than 0"
    if rest and rest.burst <= 0:
        yield f"operator.restConfig.burst: invalid value {rest.burst}: must be more than 0"
    if succeeded is not None and succeeded < 0:
        yield f"operator.aresjob.ttlSecondsAfterSucceeded: invalid value {succeeded}: must be at least 0"
    if not _DOMAIN.fullmatch(config.operator.cluster_domain):
        yield f"operator.clusterDomain: {config.operator.cluster_domain!r} is no DNS name"
    if (backend := config.operator.gang.backend) not in CHOICES:
        yield f"operator.gang.backend: invalid value {backend!r}: must be one of {', '.join(CHOICES)}"
    yield from _initializer_problems(config.initializers.common, "initializers.common")


def _cache_problems(cache: _Cache) -> Iterator[str]:
    if cache.uri != "memory://":
        yield f"cache.uri: invalid value {cache.uri!r}: must be memory://"
    observer = cache.observer
    if not _SERVICE.fullmatch(observer.service):
        yield f"cache.observer.service: {observer.service!r} is not NAME.NAMESPACE"
    if observer.node_port > 65535:
        yield f"cache.observer.nodePort: {observer.node_port} is no port"
    if observer.node_port > 0 and not observer.namespace:
        yield "cache.observer.namespace: missing; the observers' pods are looked for there"
    if observer.node_port > 0 and not observer.labels:
        yield "cache.observer.labels: missing; the observers' pods are found by them"


def _initializer_problems(common: _Initializer, path: str) -> Iterator[str]:
    if common.image is not None and not common.image:
        yield f"{path}.image: must not be empty"
    try:
        ShellCommand(common.cmd)
    except TemplateError as error:
        yield f"{path}.cmd: {error}"
    for index, volume in enumerate(common.volumes):
        if not volume.name:
            yield f"{path}.volumes[{index}].name: missing"
        if not PurePosixPath(volume.host_path).is_absolute():
            yield f"{path}.volumes[{index}].hostPath: {volume.host_path!r} is not an absolute path"


def _conversion_error(said: str) -> str:
    found = _CONVERSION_ERROR.fullmatch(said)
    where, what = (found["where"], found["said"]) if found else ("", said)
    if unknown := _UNKNOWN.fullmatch(what):
        return f"{where}.{unknown[1]}: there is no such key".lstrip(".")
    return f"{where or 'the file'}: {what[:1].lower()}{what[1:]}"


def _without_nulls(value: object) -> object:
    """Without what is null."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
