"""Tests that the files in `deploy/` are rendered from the chart, with the paths of the original README."""

from pathlib import Path
from typing import cast

import pytest
import yaml
from click.testing import CliRunner

from argosy.cli.install import install
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.install.chart import Chart, chart_folder
from argosy.install.deploy import ares_files
from argosy.install.presets import PRESETS, choose_preset
from argosy.kinds.aresjob import AresJob
from argosy.kinds.meta import Json, ObjectMeta
from argosy.workload.model import Workload

FOLDER = Path(__file__).parents[2] / "deploy" / "ares"
SAMPLES = sorted((FOLDER / "config" / "samples").glob("*.yaml"))


@pytest.mark.parametrize("path", ares_files())
def test_committed_files_are_up_to_date(path: str) -> None:
    assert (FOLDER / path).read_text() == ares_files()[path], "run: python -m argosy.install.deploy deploy"


def test_every_committed_file_is_generated() -> None:
    committed = {str(path.relative_to(FOLDER)) for path in (FOLDER / "build").rglob("*") if path.is_file()}
    assert committed == set(ares_files())


def test_files_have_the_objects_of_argosy_install() -> None:
    chart = Chart(chart_folder())
    installed = chart.objects("ares", chart.values(PRESETS["ares"].values))
    rendered = [obj for text in ares_files().values() for obj in yaml.safe_load_all(text)]
    assert sorted(map(_name, rendered)) == sorted([*map(_name, installed), "Namespace ares"])
    deployments = {
        _name(obj): cast("Json", obj["spec"])["replicas"] for obj in rendered if obj["kind"] == "Deployment"
    }
    assert deployments == {"Deployment ares-operator": 1, "Deployment ares-observer": 2}


def _name(obj: Json) -> str:
    return f"{obj['kind']} {cast('Json', obj['metadata'])['name']}"


def test_dry_run_prints_the_objects() -> None:
    """`argosy install --api ares --dry-run` prints the same objects."""
    output = CliRunner().invoke(install, ["--api", "ares", "--dry-run"], catch_exceptions=False).output
    rendered = [
        obj
        for text in ares_files().values()
        for obj in yaml.safe_load_all(text)
        if obj["kind"] != "Namespace"
    ]
    assert sorted(yaml.safe_load_all(output), key=_name) == sorted(rendered, key=_name)


def test_several_apis_share_one_operator() -> None:
    assert choose_preset(()).values == {}
    assert choose_preset(("ares", "argosy")).values == {"apis": {"ares": True, "argosy": True, "et": False}}
    assert choose_preset(("ares",)).namespace == "ares"


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
    document = yaml.safe_load((FOLDER / "config" / "samples" / f"{file}.yaml").read_text())
    containers = {
        role: spec["template"]["spec"]["containers"][0]["name"]
        for role, spec in document["spec"]["roleSpecs"].items()
    }
    assert (document["metadata"]["name"], containers) == ORIGINAL[file]


def test_there_is_a_sample_for_every_framework() -> None:
    names = {path.stem.removesuffix("-sample").removesuffix("-static") for path in SAMPLES}
    assert names == {"bagua", "custom", "dask", "mpi", "pytorch", "standalone", "tensorflow"}
