"""Subresources that Kubernetes has and this server has not: refused with what to do instead.

A bare "not found" would send people looking for the pod. Forwarding ports needs SPDY, in which kubectl wraps
each connection even inside a WebSocket; nothing else here does.
"""

from argosy.local.apiserver.requestinfo import Target
from argosy.local.apiserver.status import StatusError

_EXEC = "run a program beside the one that listens, with kubectl exec"
_RESIZE = "create the pod again with other resources"
_DEBUG = "kubectl exec runs a program in a container of the pod"
_INSTEAD = {
    ("pods", "resize"): f"the local control plane does not resize running pods: {_RESIZE}",
    ("pods", "ephemeralcontainers"): f"the local control plane has no ephemeral containers: {_DEBUG}",
    ("pods", "portforward"): f"the local control plane does not forward ports: {_EXEC}",
    ("pods", "proxy"): f"the local control plane is no proxy: {_EXEC}",
    ("services", "proxy"): f"the local control plane is no proxy: {_EXEC}",
    ("nodes", "proxy"): "the local control plane is no proxy: kubectl logs and exec reach a node's pods",
}


def unserved(target: Target) -> StatusError | None:
    """The answer to a request for such a subresource; None for any other target."""
    message = _INSTEAD.get((target.plural, target.subresource)) if not target.group else None
    return StatusError(501, "NotImplemented", message, {}) if message else None
