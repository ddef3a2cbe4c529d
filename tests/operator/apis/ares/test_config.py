"""The file of settings: what it says, and that a wrong one is told by the key that is wrong."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from msgspec import Struct

from argosy.cli.observer import observer
from argosy.cli.operator import operator
from argosy.engine.limiter import WriteLimits
from argosy.install.chart import Chart, chart_folder
from argosy.install.presets import PRESETS
from argosy.kinds.meta import Json
from argosy.operator.apis.ares.config import ConfigError, apply_config, read
from argosy.operator.apis.ares.observer_locator import ObserverService
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
"""In the words that administrators of the original know."""


def settings(text: str) -> Settings:
    return apply_config(Settings(), read(text))


def test_a_file_of_the_original_is_read() -> None:
    found = settings(ORIGINAL)
    assert found.observer_service == ObserverService(
        "ares-observer.ares", 30037, "ares", {"app": "ares", "module": "ares-observer"}, require_tokens=True
    )
    assert found.write_limits == WriteLimits(per_second=30, burst=60)
    assert found.ares_ttl_after_succeeded is None
    assert found.initializers.image == "example/initializer:v1"
    assert found.initializers.env == {"TEST": "true", "LEVEL": "2"}
    assert found.initializers.volumes == {"tools": "/opt/tools"}
    assert found.initializers.command is not None


class Said(Struct):
    text: str
    want: Json


SAID = {
    "an empty file has the observers of the original, and no cap": Said(
        "",
        {
            "observer_service": ObserverService(),
            "write_limits": WriteLimits(),
            "cluster_domain": "cluster.local",
        },
    ),
    "without observers the operator answers": Said(
        "cache: {uri: 'memory://', observer: {enabled: false}}", {"observer_service": None}
    ),
    "auth none asks for no token": Said(
        "cache: {observer: {auth: none}}",
        {"observer_service": ObserverService(require_tokens=False), "require_observer_tokens": False},
    ),
    "a port of 0 or less is none": Said(
        "cache: {observer: {nodePort: -1}}", {"observer_service": ObserverService()}
    ),
    "one of the two rates brings the other's default": Said(
        "operator: {restConfig: {qps: 5}}", {"write_limits": WriteLimits(per_second=5, burst=60)}
    ),
    "seconds after success": Said(
        "operator: {aresjob: {ttlSecondsAfterSucceeded: 0}}", {"ares_ttl_after_succeeded": 0}
    ),
    "the domain": Said("operator: {clusterDomain: example.org}", {"cluster_domain": "example.org"}),
    "who places gangs": Said("operator: {gang: {backend: own}}", {"gang_backend": "own"}),
    "nothing of gangs": Said("operator: {}", {"gang_backend": "volcano"}),
    "what is null is left out": Said("cache:\noperator:\n  restConfig:\n", {"write_limits": WriteLimits()}),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_what_a_file_says(case: Said) -> None:
    found = settings(case.text)
    assert {name: getattr(found, name) for name in case.want} == case.want


WRONG = {
    "cache.uri: invalid value 'redis://x': must be memory://": "cache: {uri: 'redis://x'}",
    "cache.observer.auth: invalid enum value 'basic'": "cache: {observer: {auth: basic}}",
    "cache.observer.service: 'observer' is not NAME.NAMESPACE": "cache: {observer: {service: observer}}",
    "cache.observer.nodePort: expected `int`, got `str`": "cache: {observer: {nodePort: '30037'}}",
    "cache.observer.nodePort: 70000 is no port": "cache: {observer: {nodePort: 70000}}",
    "cache.observer.namespace: missing": "cache: {observer: {nodePort: 30037, namespace: ''}}",
    "cache.observer.labels: missing": "cache: {observer: {nodePort: 30037, labels: {}}}",
    "operator.restConfig.qps: invalid value 0": "operator: {restConfig: {qps: 0}}",
    "operator.restConfig.burst: invalid value -1": "operator: {restConfig: {burst: -1}}",
    "operator.aresjob.ttlSecondsAfterSucceeded: invalid value -1": (
        "operator: {aresjob: {ttlSecondsAfterSucceeded: -1}}"
    ),
    "operator.clusterDomain: 'no domain' is no DNS name": "operator: {clusterDomain: no domain}",
    "operator.gang.backend: invalid value 'slurm': must be one of": "operator: {gang: {backend: slurm}}",
    "operator.restconfig: there is no such key": "operator: {restconfig: {qps: 5}}",
    "caches: there is no such key": "caches: {}",
    "initializers.common.image: must not be empty": "initializers: {common: {image: ''}}",
    "initializers.common.cmd: command: not understood": "initializers: {common: {cmd: 'a {{.Key'}}",
    "initializers.common.cmd: {{.Key}}: must not be inside quotes": (
        """initializers: {common: {cmd: "a '{{.Key}}'"}}"""
    ),
    "initializers.common.cmd: unknown variable .Other": "initializers: {common: {cmd: '{{.Other}}'}}",
    "initializers.common.cmd: the function upper is not known": (
        "initializers: {common: {cmd: '{{upper .Key}}'}}"
    ),
    "initializers.common.volumes[1].name: missing": (
        "initializers: {common: {volumes: [{name: a, hostPath: /a}, {hostPath: /b}]}}"
    ),
    "initializers.common.volumes[0].hostPath: 'a' is not an absolute path": (
        "initializers: {common: {volumes: [{name: a, hostPath: a}]}}"
    ),
    "the file: expected `object`, got `array`": "[1]",
    "not YAML": "a: [",
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_file_names_the_key(said: str) -> None:
    with pytest.raises(ConfigError) as found:
        read(WRONG[said])
    assert str(found.value).startswith(said)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"cache\.uri: .*; operator\.restConfig\.qps: "):
        read("{cache: {uri: x}, operator: {restConfig: {qps: -1}}}")


@pytest.mark.parametrize("command", [operator, observer], ids=["operator", "observer"])
def test_a_wrong_file_stops_the_start(command: object, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("operator: {restConfig: {qps: 0}}")
    assert command in (operator, observer)
    done = CliRunner().invoke(operator if command is operator else observer, ["--config", str(file)])
    assert done.exit_code == 1
    assert f"{file}: operator.restConfig.qps: invalid value 0: must be more than 0" in done.output


def test_the_file_of_the_chart_is_read() -> None:
    chart, preset = Chart(chart_folder()), PRESETS["ares"]
    given: Json = {**preset.values, "config": {"operator": {"restConfig": {"qps": 7}}}}
    (found,) = (one for one in chart.objects("ares", chart.values(given)) if one["kind"] == "ConfigMap")
    data = found["data"]
    assert isinstance(data, dict)
    read_back = settings(data["config.yaml"])
    labels = {
        "app.kubernetes.io/name": "argosy",
        "app.kubernetes.io/component": "observer",
        "app.kubernetes.io/instance": "argosy",
    }
    assert read_back.observer_service == ObserverService(labels=labels)
    assert read_back.initializers.image == IMAGE
    assert read_back.write_limits == WriteLimits(per_second=7, burst=60)
    assert yaml.safe_load(data["config.yaml"])["operator"]["clusterDomain"] == "cluster.local"
