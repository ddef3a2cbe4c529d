"""Reads a configuration file in AresOperator's format (`--config`) into the operator's settings.

Unknown keys and invalid values stop the start, with a message that names each of them. The table in
`docs/administrators/operator.md` has the defaults; null counts as left out.
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
from argosy.operator.apis.ares.api import ares_api
from argosy.operator.apis.ares.settings import AresSettings, ObserverService
from argosy.operator.apis.base import ConfigError
from argosy.operator.settings import Settings
from argosy.workload.gang_schedulers.registry import BUILTIN, CHOICES
from argosy.workload.gang_schedulers.volcano import VOLCANO

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_NAME}(\.{_NAME})*")
_SERVICE = re.compile(rf"{_NAME}(\.{_NAME})+(:\d+)?")
_CONVERSION_ERROR = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<key>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_BUILTIN_ALIAS = "own"
"""What AresJob's specification calls the builtin gang scheduler."""


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
    """Return the configuration; raise `ConfigError` if it is invalid."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"invalid YAML: {error}") from None
    try:
        config = msgspec.convert(_without_nulls(content) or {}, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_conversion_error(str(error))) from None
    if errors := list(_errors(config)):
        raise ConfigError("; ".join(errors))
    return config


def apply_config(settings: Settings, config: Config) -> Settings:
    """Return the settings with the values of the configuration."""
    rest = config.operator.rest_config
    ares = _ares_settings(config)
    return replace(
        settings,
        apis=tuple(
            ares_api(ares) if isinstance(api.settings, AresSettings) else api for api in settings.apis
        ),
        write_limits=WriteLimits(per_second=rest.qps, burst=rest.burst) if rest else WriteLimits(),
        cluster_domain=config.operator.cluster_domain,
        gang_backend=_gang_backend(config),
    )


def _gang_backend(config: Config) -> str:
    backend = config.operator.gang.backend
    return BUILTIN.name if backend == _BUILTIN_ALIAS else backend


def _ares_settings(config: Config) -> AresSettings:
    observer, common = config.cache.observer, config.initializers.common
    observers = ObserverService(
        service=observer.service,
        node_port=max(observer.node_port, 0),
        namespace=observer.namespace,
        labels=observer.labels,
        require_tokens=observer.auth == "token",
    )
    return AresSettings(
        observers=observers if observer.enabled else None,
        require_tokens=observers.require_tokens,
        ttl_after_succeeded=config.operator.aresjob.ttl_seconds_after_succeeded,
        initializers=Initializers(
            image=common.image or "",
            command=ShellCommand(common.cmd) if common.cmd else None,
            env={name: _text(value) for name, value in common.envs.items()},
            volumes={volume.name: volume.host_path for volume in common.volumes},
        ),
    )


def _errors(config: Config) -> Iterator[str]:
    yield from _cache_errors(config.cache)
    operator = config.operator
    rest, ttl, domain = (
        operator.rest_config,
        operator.aresjob.ttl_seconds_after_succeeded,
        operator.cluster_domain,
    )
    if rest and rest.qps <= 0:
        yield f"operator.restConfig.qps: invalid value {rest.qps:g}: must be more than 0"
    if rest and rest.burst <= 0:
        yield f"operator.restConfig.burst: invalid value {rest.burst}: must be more than 0"
    if ttl is not None and ttl < 0:
        yield f"operator.aresjob.ttlSecondsAfterSucceeded: invalid value {ttl}: must be at least 0"
    if not _DOMAIN.fullmatch(domain):
        yield f'operator.clusterDomain: invalid value "{domain}": must be a DNS name'
    if (backend := operator.gang.backend) not in (*CHOICES, _BUILTIN_ALIAS):
        yield f'operator.gang.backend: invalid value "{backend}": must be one of {", ".join(CHOICES)}'
    yield from _initializer_errors(config.initializers.common, "initializers.common")


def _cache_errors(cache: _Cache) -> Iterator[str]:
    if cache.uri != "memory://":
        yield f'cache.uri: invalid value "{cache.uri}": must be memory://'
    observer = cache.observer
    if not _SERVICE.fullmatch(observer.service):
        yield f'cache.observer.service: invalid value "{observer.service}": must be NAME.NAMESPACE'
    if observer.node_port > 65535:
        yield f"cache.observer.nodePort: invalid value {observer.node_port}: must be at most 65535"
    if observer.node_port > 0 and not observer.namespace:
        yield "cache.observer.namespace: required with nodePort, to find the observers' pods"
    if observer.node_port > 0 and not observer.labels:
        yield "cache.observer.labels: required with nodePort, to find the observers' pods"


def _initializer_errors(common: _Initializer, path: str) -> Iterator[str]:
    if common.image is not None and not common.image:
        yield f"{path}.image: must not be empty"
    try:
        ShellCommand(common.cmd)
    except TemplateError as error:
        yield f"{path}.cmd: {error}"
    for index, volume in enumerate(common.volumes):
        if not volume.name:
            yield f"{path}.volumes[{index}].name: required"
        if not PurePosixPath(volume.host_path).is_absolute():
            value = f'invalid value "{volume.host_path}"'
            yield f"{path}.volumes[{index}].hostPath: {value}: must be an absolute path"


def _conversion_error(message: str) -> str:
    """Return an error of the decoder with the key first, as all other errors have it."""
    match = _CONVERSION_ERROR.fullmatch(message)
    key, problem = (match["key"], match["problem"]) if match else ("", message)
    if unknown := _UNKNOWN.fullmatch(problem):
        return f"{key}.{unknown[1]}: unknown key".lstrip(".")
    return f"{key or 'the file'}: {problem[:1].lower()}{problem[1:]}"


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value


def _text(value: object) -> str:
    """Return a value as an environment variable has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
