"""Builds TrainingJobs, ScaleIns and ScaleOuts for tests, from the examples of et-operator's README."""

import copy
from pathlib import Path

import yaml

from tests.support.commands import REPOSITORY

EXAMPLES = REPOSITORY / "deploy" / "et" / "examples"
API = "/apis/kai.alibabacloud.com/v1alpha1/namespaces/default"
JOBS, SCALE_INS, SCALE_OUTS = f"{API}/trainingjobs", f"{API}/scaleins", f"{API}/scaleouts"

Json = dict[str, object]
REMOVED = object()
"""A value that removes a field."""


def example(name: str) -> Json:
    return load(EXAMPLES / name)


def load(path: Path) -> Json:
    manifest = yaml.safe_load(path.read_text())
    assert isinstance(manifest, dict)
    return manifest


def job(name: str = "j", changes: Json | None = None) -> Json:
    """The example of a job (2 workers of 1 to 9 with a GPU each), changed at dotted paths below `spec`.

    `worker.` and `launcher.` at the beginning of a path stand for `etReplicaSpecs.worker.` and so on.
    """
    manifest = copy.deepcopy(_JOB)
    manifest["metadata"] = {"name": name}
    return change(manifest, changes or {})


def change(manifest: Json, changes: Json) -> Json:
    """Change a job at dotted paths, as `job` does; return it."""
    for path, value in changes.items():
        is_role = path.split(".")[0] in ("worker", "launcher")
        set_path(manifest, f"spec.{'etReplicaSpecs.' if is_role else ''}{path}".split("."), value)
    return manifest


def scale_in(name: str = "s", **spec: object) -> Json:
    return _scaler("ScaleIn", name, spec)


def scale_out(name: str = "s", **spec: object) -> Json:
    return _scaler("ScaleOut", name, spec)


def _scaler(kind: str, name: str, spec: Json) -> Json:
    manifest: Json = {"apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": kind}
    return {**manifest, "metadata": {"name": name}, "spec": {"selector": {"name": "j"}, **spec}}


def set_path(value: object, path: list[str], new: object) -> None:
    """Set the field at a path, or remove it; missing maps on the way are made."""
    for part in path[:-1]:
        assert isinstance(value, dict)
        value = value.setdefault(part, {})
    assert isinstance(value, dict)
    if new is REMOVED:
        del value[path[-1]]
    else:
        value[path[-1]] = new


_JOB = example("training_job.yaml")
