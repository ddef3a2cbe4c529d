"""Tests that the files in `deploy/` are rendered from the chart, with the paths of the original READMEs."""

from functools import cache
from pathlib import Path
from typing import cast

import pytest
import yaml
from click.testing import CliRunner

from argosy.cli.install import install
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.install.chart import Chart, chart_folder
from argosy.install.deploy import LAYOUTS, rendered_files
from argosy.install.presets import PRESETS, choose_preset, split_namespace
from argosy.kinds.aresjob import AresJob
from argosy.kinds.meta import Json, ObjectMeta
from argosy.workload.model import Workload

DEPLOY = Path(__file__).parents[2] / "deploy"
PATHS = tuple(f"{api}/{path}" for api, layout in LAYOUTS.items() for path in layout.files)
ARES = DEPLOY / "ares"
SAMPLES = sorted((ARES / "config" / "samples").glob("*.yaml"))
ET_VALUES = DEPLOY / "et" / "config" / "values.yaml"
HAND_WRITTEN = {"et/Makefile", "et/config/values.yaml", "spot/Makefile"}


@cache
def rendered() -> dict[str, str]:
    """Return what the committed files must contain; rendered once, and not while tests are collected."""
    return rendered_files(DEPLOY)


@pytest.mark.parametrize("path", PATHS)
def test_committed_files_are_up_to_date(path: str) -> None:
    assert (DEPLOY / path).read_text() == rendered()[path], "run: python -m argosy.install.deploy deploy"


def test_every_committed_file_is_generated() -> None:
    committed = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()}
    examples = {path for path in committed if "/samples/" in path or "/examples/" in path}
    assert committed - examples == {*rendered(), *HAND_WRITTEN}


def objects_of(api: str) -> list[Json]:
    """Return the objects of all files of an API, in the order of the files."""
    files = [text for path, text in rendered().items() if path.startswith(f"{api}/")]
    return [obj for text in files for obj in yaml.safe_load_all(text)]


DEPLOYMENTS = {
    "ares": {"Deployment ares-operator": 1, "Deployment ares-observer": 2},
    "et": {"Deployment et-operator": 1},
    "spot": {"Deployment spot-instance-training-operator-controller-manager": 1},
}


@pytest.mark.parametrize("api", LAYOUTS)
def test_files_have_the_objects_of_argosy_install(api: str) -> None:
    chart, preset = Chart(chart_folder()), PRESETS[api]
    installed = chart.objects(preset.namespace, chart.values(preset.values))
    rendered = objects_of(api)
    assert sorted(map(_name, rendered)) == sorted([*map(_name, installed), f"Namespace {preset.namespace}"])
    deployments = {
        _name(obj): cast("Json", obj["spec"])["replicas"] for obj in rendered if obj["kind"] == "Deployment"
    }
    assert deployments == DEPLOYMENTS[api]


def _name(obj: Json) -> str:
    return f"{obj['kind']} {cast('Json', obj['metadata'])['name']}"


@pytest.mark.parametrize("api", LAYOUTS)
def test_dry_run_prints_the_objects(api: str) -> None:
    """`argosy install --api ares --dry-run` prints the same objects."""
    output = CliRunner().invoke(install, ["--api", api, "--dry-run"], catch_exceptions=False).output
    rendered = [obj for obj in objects_of(api) if obj["kind"] != "Namespace"]
    assert sorted(yaml.safe_load_all(output), key=_name) == sorted(rendered, key=_name)


def test_one_file_creates_objects_before_others_need_them() -> None:
    kinds = [str(obj["kind"]) for obj in objects_of("et")]
    assert kinds[:4] == ["Namespace", *["CustomResourceDefinition"] * 3]
    before_pods = ("ServiceAccount", "ClusterRoleBinding", "RoleBinding", "ConfigMap", "Service")
    assert all(kinds.index(kind) < kinds.index("Deployment") for kind in before_pods)


def test_file_with_values_has_the_defaults() -> None:
    """Otherwise `argosy install --api et` and `make deploy` would install different operators."""
    written, namespace = split_namespace(yaml.safe_load(ET_VALUES.read_text()))
    chart, preset = Chart(chart_folder()), PRESETS["et"]
    assert namespace == preset.namespace
    assert chart.values(preset.values, written) == chart.values(preset.values)
    assert set(written) == {"image", "et", "resources"}


def test_edited_values_are_rendered(tmp_path: Path) -> None:
    values = tmp_path / "et" / "config" / "values.yaml"
    values.parent.mkdir(parents=True)
    values.write_text("{namespace: other, image: {repository: x/y, tag: z}, et: {createSshSecret: false}}")
    text = rendered_files(tmp_path)["et/config/deploy.yaml"]
    namespaces = {cast("Json", obj["metadata"]).get("namespace") for obj in yaml.safe_load_all(text)}
    assert namespaces == {None, "other"}
    assert "image: x/y:z" in text
    assert "--create-ssh-secret=false" in text


def test_several_apis_share_one_operator() -> None:
    assert choose_preset(()).values == {}
    served = {"argosy": True, "ares": True, "et": False, "spot": False}
    assert choose_preset(("ares", "argosy")).values == {"apis": served}
    assert choose_preset(("ares",)).namespace == "ares"
    assert choose_preset(("et",)).namespace == "kube-ai"
    assert choose_preset(("spot",)).namespace == "spot-instance-training-operator-system"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_valid(sample: Path) -> None:
    """54. Every file of config/samples, with the image as it stands -> not InvalidDefinition."""
    document = yaml.safe_load(sample.read_text())
    assert (document["apiVersion"], document["kind"]) == ("ares.io/v1", "AresJob")
    assert "${IMAGE}" in sample.read_text()
    lowered = AresJobDialect().to_workload(
        AresJob(ObjectMeta(name=document["metadata"]["name"]), document["spec"])
    )
    assert isinstance(lowered, Workload), str(lowered)


ORIGINAL = {
    "bagua-sample": ("bagua-sample-elastic", {"worker": "bagua", "etcd": "bagua"}),
    "custom-sample": ("custom-sample", {"worker": "worker", "launcher": "launcher"}),
    "mpi-sample": ("mpi-sample", {"worker": "worker", "launcher": "launcher"}),
    "pytorch-sample": ("pytorch-sample", {"master": "pytorch", "worker": "worker"}),
    "standalone": ("standalone-sample", {"worker": "worker"}),
    "tensorflow-sample": (
        "tensorflow-sample",
        {"master": "tensorflow", "worker": "tensorflow", "evaluator": "tensorflow"},
    ),
}
"""Names of the original's samples: of the file, of the job, and of each role's container."""


@pytest.mark.parametrize("file", ORIGINAL)
def test_samples_have_the_names_of_aresoperators_samples(file: str) -> None:
    document = yaml.safe_load((ARES / "config" / "samples" / f"{file}.yaml").read_text())
    containers = {
        role: spec["template"]["spec"]["containers"][0]["name"]
        for role, spec in document["spec"]["roleSpecs"].items()
    }
    assert (document["metadata"]["name"], containers) == ORIGINAL[file]


def test_there_is_a_sample_for_every_framework() -> None:
    names = {path.stem.removesuffix("-sample").removesuffix("-static") for path in SAMPLES}
    assert names == {"bagua", "custom", "dask", "mpi", "pytorch", "standalone", "tensorflow"}
