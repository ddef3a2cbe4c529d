"""Tests that Helm and `argosy install` render the same objects from the chart."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.install.chart import Chart, chart_folder
from argosy.install.presets import PRESETS
from argosy.kinds.meta import Json
from tests.support.assets import DEFAULT, MissingAsset, find

pytestmark = pytest.mark.cluster

CHART = Chart(chart_folder())

VALUES: dict[str, Json] = {
    "defaults": {},
    "one namespace, no features": {
        "watchNamespace": "team",
        "observer": {"enabled": True},
        "features": {"remoteExec": False},
        "gang": {"backend": "builtin"},
        "crds": {"install": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "all values set": {
        "image": {"repository": "example.org:5000/argosy", "tag": "1.10", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 3,
        "concurrency": 1024,
        "serviceAccount": {"annotations": {"a/b": "c: d"}},
        "podLabels": {"team": "x"},
        "podAnnotations": {"note": 'says "yes"\non two lines'},
        "priorityClassName": "high",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": [1, 2]}}},
        "resources": {"limits": None, "requests": {"memory": "1Gi"}},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}], "apiServerPorts": [1, 65535]},
        "serviceMonitor": {"enabled": True, "interval": "1m30s", "labels": {"release": "prometheus"}},
        "observer": {"enabled": True, "auth": "none", "nodePort": 30037},
        "webhooks": {"enabled": True},
        "features": {"sshKeys": True},
        "config": {"initializers": {"common": {"cmd": "a < {{.Key}} && b", "envs": {"LEVEL": "2"}}}},
    },
    "preset of one API": PRESETS["ares"].values,
    "digest and tag": {"image": {"tag": "x", "digest": f"sha256:{'a' * 64}"}},
    "no replicas": {"replicas": 0},
    "webhooks of two APIs": {"apis": {"spot": True}, "webhooks": {"enabled": True}},
    "webhook for pods only, one namespace": {
        "apis": {"ares": False, "spot": True},
        "webhooks": {"enabled": True},
        "watchNamespace": "jobs",
    },
}


@pytest.fixture(scope="module")
def helm() -> Path:
    try:
        return find("helm")
    except MissingAsset as error:
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(error))


def template(helm: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Render the chart; a Helm built from its module needs the Kubernetes version as a flag."""
    return run(helm, "template", "argosy", str(CHART.path), f"--kube-version={DEFAULT}", *words)


def run(helm: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(helm), *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", VALUES)
def test_helm_and_argosy_render_the_same_objects(case: str, helm: Path, tmp_path: Path) -> None:
    values_file = tmp_path / "values.yaml"
    values_file.write_text(yaml.safe_dump(VALUES[case]))
    done = template(helm, "-n", "somewhere", "--values", str(values_file))
    assert done.returncode == 0, done.stderr
    theirs = by_name(obj for obj in yaml.safe_load_all(done.stdout) if obj)
    ours = by_name(CHART.objects("somewhere", CHART.values(VALUES[case])))
    assert ours == theirs


def test_helm_lint_passes(helm: Path) -> None:
    done = run(helm, "lint", "--strict", str(CHART.path))
    assert done.returncode == 0, done.stdout + done.stderr


WRONG = {"an unknown value": "replica=1", "another type": "replicas=many", "out of bounds": "concurrency=0"}


@pytest.mark.parametrize("case", WRONG)
def test_helm_rejects_the_same_values(case: str, helm: Path) -> None:
    done = template(helm, "--set", WRONG[case])
    assert done.returncode != 0
    assert WRONG[case].partition("=")[0] in done.stderr


def by_name(objects: Iterable[Json]) -> dict[tuple[str, str, str], Json]:
    named: dict[tuple[str, str, str], Json] = {}
    for obj in objects:
        metadata = cast("dict[str, str]", obj["metadata"])
        key = (str(obj["kind"]), metadata.get("namespace", ""), metadata["name"])
        if obj["kind"] == "ConfigMap":  # both write the same settings, each with its own quotes
            obj["data"] = {
                name: yaml.safe_load(text) for name, text in cast("dict[str, str]", obj["data"]).items()
            }
        assert key not in named
        named[key] = obj
    return named
