"""Templates and Secrets for tests of VMs."""

import json
from typing import Any

from msgspec.structs import replace

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot_machines import (
    Gcp,
    Gpu,
    InstanceTemplate,
    InstanceTemplateSpec,
    SpotInstanceVM,
    SpotInstanceVMSpec,
)

NAMESPACE = "default"

CREDENTIALS = json.dumps(
    {"type": "service_account", "client_email": "robot@p.example.com", "private_key": "not a key"}
).encode()

JOIN = {
    "token": b"abcdef.0123456789abcdef",
    "ca-cert-hash": b"sha256:" + b"0" * 64,
    "control-plane-endpoint": b"10.0.0.1:6443",
}

IMAGE = "projects/my-project/global/images/gpu-node"
GCP = Gcp(project="my-project", zone="us-central1-a", machine_type="n1-standard-4")


def seed_template(*, gpu: bool = True, script: str = "", gcp: dict[str, Any] | None = None) -> SpotInstanceVM:
    """Return a SpotInstanceVM with one GPU."""
    spec = SpotInstanceVMSpec(
        vm_image=IMAGE,
        gpu=Gpu("nvidia-tesla-t4", 1) if gpu else None,
        gcp=replace(GCP, **(gcp or {})),
        startup_script=script,
    )
    return SpotInstanceVM(ObjectMeta(name="vm", namespace=NAMESPACE), spec)


def later_template(*, preemptible: bool = True, gcp: dict[str, Any] | None = None) -> InstanceTemplate:
    """Return an InstanceTemplate that means the same."""
    spec = InstanceTemplateSpec(
        vm_image=IMAGE,
        gpu=Gpu("nvidia-tesla-t4", 1),
        gcp=replace(GCP, **(gcp or {})),
        preemptible=preemptible,
    )
    return InstanceTemplate(ObjectMeta(name="vm", namespace=NAMESPACE), spec)
