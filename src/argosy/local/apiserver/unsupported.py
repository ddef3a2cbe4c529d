"""Rejects subresources that are not supported, with what to do instead.

A 404 would suggest that the pod does not exist. Port forwarding needs SPDY, which kubectl uses inside a
WebSocket too.
"""

from argosy.local.apiserver.requestinfo import Target
from argosy.local.apiserver.status import StatusError

_EXEC = "run a client in the pod, with kubectl exec"
_RESIZE = "create the pod again with other resources"
_DEBUG = "kubectl exec runs a program in a container of the pod"
_INSTEAD = {
    ("pods", "resize"): f"the local control plane does not resize running pods: {_RESIZE}",
    ("pods", "ephemeralcontainers"): f"the local control plane has no ephemeral containers: {_DEBUG}",
    ("pods", "portforward"): f"the local control plane does not forward ports: {_EXEC}",
    ("pods", "proxy"): f"the local control plane is no proxy: {_EXEC}",
    ("services", "proxy"): f"the local control plane is no proxy: {_EXEC}",
    ("nodes", "proxy"): "the local control plane proxies checkpoints only: kubectl logs and exec reach pods",
}


def is_checkpoint(target: Target) -> bool:
    """Return True for the kubelet's path of checkpoints, the only one that is proxied to nodes."""
    return (target.group, target.plural, target.subresource) == ("", "nodes", "proxy") and (
        target.rest.startswith("checkpoint/")
    )


def unsupported_error(target: Target) -> StatusError | None:
    """Return the response to a request for such a subresource; None for other targets."""
    if is_checkpoint(target):
        return None
    message = _INSTEAD.get((target.plural, target.subresource)) if not target.group else None
    return StatusError(501, "NotImplemented", message, {}) if message else None
