"""Settings of AresJobs, and of the observers that answer their pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, field

from argosy.dialects.ares.initializers import Initializers

if TYPE_CHECKING:  # the settings of the whole operator hold these
    from argosy.operator.settings import Settings

SERVICE, NAMESPACE = "ares-observer", "ares"
"""Name and namespace of the observers unless configured otherwise."""
HTTP_PORT = 80
"""Port of AresOperator's observers, which use neither tokens nor TLS."""


class ObserverService(Struct, frozen=True):
    """Processes that answer the pods of AresJobs in place of the operator."""

    service: str = f"{SERVICE}.{NAMESPACE}"
    """Host name, NAME.NAMESPACE or longer, optionally with a port."""
    node_port: int = 0
    """Port of the observers on every node; 0: none."""
    namespace: str = NAMESPACE
    labels: Mapping[str, str] = field(default_factory=lambda: {"app": "ares", "module": SERVICE})
    """Select the observers' pods in `namespace`, to find their nodes."""
    require_tokens: bool = True
    """True: they answer over TLS, and only with a job's token. False: anyone, in plain HTTP."""

    @property
    def scheme(self) -> str:
        return "https" if self.require_tokens else "http"

    @property
    def host(self) -> str:
        return self.service.partition(":")[0]


class AresSettings(Struct, frozen=True):
    """What an administrator may configure for AresJobs alone."""

    observers: ObserverService | None = None
    """The observers that answer pods in place of the operator; None: the operator answers."""
    require_tokens: bool = True
    """Answer requests about an AresJob only with its token. AresOperator's own clients have none."""
    ttl_after_succeeded: float | None = None
    """Seconds after which pods, services and pod groups of succeeded AresJobs are deleted; None: never."""
    initializers: Initializers = field(default_factory=Initializers)


def observer_secret(name: str) -> str:
    """Return the name of the Secret with the observers' certificate; `name` is that of the operator."""
    return f"{name}-observer-tls"


def ares_settings(settings: "Settings") -> AresSettings:
    """Return the part of an operator's settings that concerns AresJobs."""
    return next(
        (api.settings for api in settings.apis if isinstance(api.settings, AresSettings)), AresSettings()
    )


def observer_settings(settings: "Settings", auth: str | None, port: int | None) -> "Settings":
    """Return the settings of an observer process: it answers pods of AresJobs and runs no controllers."""
    from argosy.operator.apis.ares.api import ares_api

    own = ares_settings(settings)
    require_tokens = own.require_tokens if auth is None else auth == "token"
    http_port = port or (None if require_tokens else HTTP_PORT)
    return replace(
        settings,
        apis=(ares_api(AresSettings(require_tokens=require_tokens)),),
        endpoint_only=True,
        credentials_secret=observer_secret(settings.name),
        leader_elect=False,
        gang_backend="none",  # the operator reads the same configuration file; observers watch no pod groups
        remote_exec=False,
        http_endpoint=f":{http_port}" if http_port else "",
    )
