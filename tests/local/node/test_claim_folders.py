"""Tests that the name of a claim cannot lead out of the folder of volumes."""

from pathlib import Path
from typing import cast

import msgspec
import pytest

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.local.node.claim_folders import ClaimFolders
from argosy.local.node.pod_types import Pod
from argosy.local.node.volumes import VolumeError
from argosy.local.service_types import PersistentVolumeClaim

NAMES = {
    "name with dots and slashes: rejected": "../../etc",
    "absolute path: rejected": "/etc",
    "only dots: rejected": "..",
    "empty name: rejected": "",
}


@pytest.mark.parametrize("case", NAMES)
async def test_a_claim_name_cannot_lead_out_of_the_folder(case: str, tmp_path: Path) -> None:
    """Refused before anybody is asked about it."""
    claims = ClaimFolders(cast("Client", None), cast("Cache[PersistentVolumeClaim]", None), tmp_path)
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": NAMES[case]}}],
            },
        },
        Pod,
    )
    with pytest.raises(VolumeError, match="invalid name"):
        await claims.folders(pod)
