"""Builds SpotInstanceJobs and their templates for tests, from the manifests of the README."""

import copy

from tests.support.commands import REPOSITORY
from tests.support.trainingjobs import REMOVED, Json, load, set_path

EXAMPLES = REPOSITORY / "examples" / "spot"
API = "/apis/training.training.dcnlab.com/v1alpha1/namespaces/default"
JOBS, VMS = f"{API}/spotinstancejobs", f"{API}/spotinstancevms"
TEMPLATES, INSTANCES = f"{API}/instancetemplates", f"{API}/provisionedinstances"

__all__ = ["REMOVED", "Json"]


def spot_job(name: str = "my-training-job", changes: Json | None = None) -> Json:
    """The job of the README (2 replicas with a GPU each), changed at dotted paths in its spec."""
    return _changed(load(EXAMPLES / "spotinstancejob.yaml"), name, changes)


def spot_vm(name: str = "my-training-vm", changes: Json | None = None) -> Json:
    """The SpotInstanceVM of the README, changed at dotted paths in its spec."""
    return _changed(load(EXAMPLES / "spotinstancevm.yaml"), name, changes)


def instance_template(name: str = "my-training-vm", changes: Json | None = None) -> Json:
    """An InstanceTemplate with the values of the README's SpotInstanceVM."""
    return {**spot_vm(name, changes), "kind": "InstanceTemplate"}


def backup(name: str = "b", version: str = "v1", changes: Json | None = None) -> Json:
    """A CheckpointBackup of a pod, once."""
    manifest: Json = {
        "apiVersion": f"migration.dcnlab.com/{version}",
        "kind": "CheckpointBackup",
        "spec": {
            "schedule": "immediately",
            "podRef": {"name": "p"},
            "resourceRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
        },
    }
    return _changed(manifest, name, changes)


def _changed(manifest: Json, name: str, changes: Json | None) -> Json:
    manifest = copy.deepcopy(manifest)
    manifest["metadata"] = {"name": name}
    for path, value in (changes or {}).items():
        set_path(manifest, f"spec.{path}".split("."), value)
    return manifest
