"""Writes a kubeconfig for a user of a local control plane.

The cluster entry has the server's Unix socket in an extension, which our client uses and kubectl ignores. The
format is JSON, which is valid YAML, so that our processes start without a YAML parser.
"""

import base64
import os
from pathlib import Path

import msgspec


def write_kubeconfig(path: Path, server: str, ca: Path, token: str, socket: Path | None = None) -> None:
    """Write `path`, readable by its owner only; `ca` is the file of the authority's certificate."""
    cluster: dict[str, object] = {
        "server": server,
        "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode(),
    }
    if socket is not None:
        extension = {"name": "argosy.dev/unix-socket", "extension": {"path": str(socket)}}
        cluster["extensions"] = [extension]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "argosy", "cluster": cluster}],
        "users": [{"name": "argosy", "user": {"token": token}}],
        "contexts": [{"name": "argosy", "context": {"cluster": "argosy", "user": "argosy"}}],
        "current-context": "argosy",
    }
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(config)))
    partial.replace(path)
