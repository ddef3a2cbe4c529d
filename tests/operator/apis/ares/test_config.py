"""Tests for configuration files in AresOperator's format: their settings, and errors that name the key."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from msgspec import Struct, field

from argosy.cli.observer import observer
from argosy.cli.operator import operator
from argosy.engine.limiter import WriteLimits
from argosy.install.chart import Chart, chart_folder
from argosy.install.presets import PRESETS
from argosy.kinds.meta import Json
from argosy.operator.apis.ares.config import apply_config, read
from argosy.operator.apis.ares.settings import AresSettings, ObserverService, ares_settings
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.apis.base import ConfigError
from argosy.operator.settings import IMAGE, Settings

ORIGINAL = """
cache:
  observer:
    enabled: true
    service: ares-observer.ares
    nodePort: 30037
    namespace: ares
    labels: {app: ares, module: ares-observer}
operator:
  restConfig: {qps: 30.0, burst: 60}
  aresjob: {ttlSecondsAfterSucceeded: null}
initializers:
  common:
    image: example/initializer:v1
    cmd: |
      ./initializer cache --logtostderr --key {{.Key}} --cacheURI {{.CacheURI}}
      --roles {{.Roles}} --mpi-implementation {{.MPIImplementation}}
    envs: {TEST: true, LEVEL: 2}
    volumes: [{name: tools, hostPath: /opt/tools}]
"""
"""A file as AresOperator's administrators write it."""


def settings(text: str) -> Settings:
    return apply_config(Settings(), read(text))


def ares(text: str) -> AresSettings:
    return ares_settings(settings(text))


def test_config_file_of_aresoperator_is_read() -> None:
    parsed = ares(ORIGINAL)
    assert parsed.observers == ObserverService(
        "ares-observer.ares", 30037, "ares", {"app": "ares", "module": "ares-observer"}, require_tokens=True
    )
    assert settings(ORIGINAL).write_limits == WriteLimits(per_second=30, burst=60)
    assert parsed.ttl_after_succeeded is None
    assert parsed.initializers.image == "example/initializer:v1"
    assert parsed.initializers.env == {"TEST": "true", "LEVEL": "2"}
    assert parsed.initializers.volumes == {"tools": "/opt/tools"}
    assert parsed.initializers.command is not None


class Case(Struct):
    text: str
    want: Json = field(default_factory=dict)
    """Settings of the operator."""
    want_ares: Json = field(default_factory=dict)
    """Settings of AresJobs."""


CASES = {
    "empty file: observers in namespace ares, no limit of writes": Case(
        "",
        {"write_limits": WriteLimits(), "cluster_domain": "cluster.local"},
        {"observers": ObserverService()},
    ),
    "observer disabled: no observers": Case(
        "cache: {uri: 'memory://', observer: {enabled: false}}", want_ares={"observers": None}
    ),
    "auth none: no token required": Case(
        "cache: {observer: {auth: none}}",
        want_ares={"observers": ObserverService(require_tokens=False), "require_tokens": False},
    ),
    "negative nodePort: no nodePort": Case(
        "cache: {observer: {nodePort: -1}}", want_ares={"observers": ObserverService()}
    ),
    "qps without burst: default burst": Case(
        "operator: {restConfig: {qps: 5}}", {"write_limits": WriteLimits(per_second=5, burst=60)}
    ),
    "ttlSecondsAfterSucceeded 0: deleted at once": Case(
        "operator: {aresjob: {ttlSecondsAfterSucceeded: 0}}", want_ares={"ttl_after_succeeded": 0}
    ),
    "clusterDomain": Case("operator: {clusterDomain: example.org}", {"cluster_domain": "example.org"}),
    "gang.backend builtin: builtin": Case(
        "operator: {gang: {backend: builtin}}", {"gang_backend": "builtin"}
    ),
    "gang.backend own: builtin": Case("operator: {gang: {backend: own}}", {"gang_backend": "builtin"}),
    "no gang.backend: volcano": Case("operator: {}", {"gang_backend": "volcano"}),
    "null values: left out": Case("cache:\noperator:\n  restConfig:\n", {"write_limits": WriteLimits()}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_settings_from_a_config_file(case: Case) -> None:
    parsed, parsed_ares = settings(case.text), ares(case.text)
    assert {name: getattr(parsed, name) for name in case.want} == case.want
    assert {name: getattr(parsed_ares, name) for name in case.want_ares} == case.want_ares


def test_without_aresjobs_only_settings_of_the_operator_are_applied() -> None:
    served = apply_config(Settings(apis=(ARGOSY,)), read("operator: {clusterDomain: example.org}"))
    assert (served.apis, served.cluster_domain) == ((ARGOSY,), "example.org")


ERRORS = {
    'cache.uri: invalid value "redis://x": must be memory://': "cache: {uri: 'redis://x'}",
    "cache.observer.auth: invalid enum value 'basic'": "cache: {observer: {auth: basic}}",
    'cache.observer.service: invalid value "observer": must be NAME.NAMESPACE': (
        "cache: {observer: {service: observer}}"
    ),
    "cache.observer.nodePort: expected `int`, got `str`": "cache: {observer: {nodePort: '30037'}}",
    "cache.observer.nodePort: invalid value 70000: must be at most 65535": (
        "cache: {observer: {nodePort: 70000}}"
    ),
    "cache.observer.namespace: required": "cache: {observer: {nodePort: 30037, namespace: ''}}",
    "cache.observer.labels: required": "cache: {observer: {nodePort: 30037, labels: {}}}",
    "operator.restConfig.qps: invalid value 0": "operator: {restConfig: {qps: 0}}",
    "operator.restConfig.burst: invalid value -1": "operator: {restConfig: {burst: -1}}",
    "operator.aresjob.ttlSecondsAfterSucceeded: invalid value -1": (
        "operator: {aresjob: {ttlSecondsAfterSucceeded: -1}}"
    ),
    'operator.clusterDomain: invalid value "no domain": must be a DNS name': (
        "operator: {clusterDomain: no domain}"
    ),
    'operator.gang.backend: invalid value "slurm": must be one of': "operator: {gang: {backend: slurm}}",
    "operator.restconfig: unknown key": "operator: {restconfig: {qps: 5}}",
    "caches: unknown key": "caches: {}",
    "initializers.common.image: must not be empty": "initializers: {common: {image: ''}}",
    "initializers.common.cmd: command: invalid syntax": "initializers: {common: {cmd: 'a {{.Key'}}",
    "initializers.common.cmd: {{.Key}}: must not be inside quotes": (
        """initializers: {common: {cmd: "a '{{.Key}}'"}}"""
    ),
    "initializers.common.cmd: unknown variable .Other": "initializers: {common: {cmd: '{{.Other}}'}}",
    "initializers.common.cmd: unknown function upper": ("initializers: {common: {cmd: '{{upper .Key}}'}}"),
    "initializers.common.volumes[1].name: required": (
        "initializers: {common: {volumes: [{name: a, hostPath: /a}, {hostPath: /b}]}}"
    ),
    'initializers.common.volumes[0].hostPath: invalid value "a": must be an absolute path': (
        "initializers: {common: {volumes: [{name: a, hostPath: a}]}}"
    ),
    "the file: expected `object`, got `array`": "[1]",
    "invalid YAML": "a: [",
}


@pytest.mark.parametrize("message", ERRORS)
def test_invalid_config_file_is_rejected_with_the_key(message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(ERRORS[message])
    assert str(raised.value).startswith(message)


def test_all_errors_of_a_config_file_are_reported_together() -> None:
    with pytest.raises(ConfigError, match=r"cache\.uri: .*; operator\.restConfig\.qps: "):
        read("{cache: {uri: x}, operator: {restConfig: {qps: -1}}}")


@pytest.mark.parametrize("command", [operator, observer], ids=["operator", "observer"])
def test_invalid_config_file_ends_the_command(command: object, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("operator: {restConfig: {qps: 0}}")
    assert command in (operator, observer)
    done = CliRunner().invoke(operator if command is operator else observer, ["--config", str(file)])
    assert done.exit_code == 1
    assert f"{file}: operator.restConfig.qps: invalid value 0: must be more than 0" in done.output


def test_config_file_of_the_chart_is_read() -> None:
    chart, preset = Chart(chart_folder()), PRESETS["ares"]
    values: Json = {**preset.values, "config": {"operator": {"restConfig": {"qps": 7}}}}
    (config_map,) = (obj for obj in chart.objects("ares", chart.values(values)) if obj["kind"] == "ConfigMap")
    data = config_map["data"]
    assert isinstance(data, dict)
    found_ares = ares(data["config.yaml"])
    labels = {
        "app.kubernetes.io/name": "argosy",
        "app.kubernetes.io/component": "observer",
        "app.kubernetes.io/instance": "argosy",
    }
    assert found_ares.observers == ObserverService(labels=labels)
    assert found_ares.initializers.image == IMAGE
    assert settings(data["config.yaml"]).write_limits == WriteLimits(per_second=7, burst=60)
    assert yaml.safe_load(data["config.yaml"])["operator"]["clusterDomain"] == "cluster.local"
