"""Defines the value that registers one API: all that the operator, the CLI and the chart know about it.

They read the list in `registry` and name no API themselves, so a further API, of jobs or of other kinds, is
a module of its own and a line in that list. Commands of the CLI read these values too; what only a running
operator needs is therefore imported when `start` or `apply_config` is called.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.crd_options import CustomResource
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.meta import Json
from argosy.kinds.resource import Resource
from argosy.operator.apis.summary import JobKind
from argosy.operator.rbac import PolicyRule

if TYPE_CHECKING:  # needed by a running operator only
    from collections.abc import AsyncIterator

    from argosy.engine.kubeconfig import Connection
    from argosy.operator.endpoint import Route, RouteContext
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings
    from argosy.operator.watched_kinds import AnyCache
    from argosy.operator.webhooks import Review


class Preset(Struct, frozen=True):
    """How an installation of this API alone differs from the chart's defaults, as its users expect it."""

    namespace: str = OPERATOR_NAMESPACE
    values: Json = {}


class Webhook(Struct, frozen=True, kw_only=True):
    """An admission webhook that the chart announces; `RunningApi.reviews` answers it.

    Fields of the configuration that are not here have one value for all webhooks, see `tools.chart`.
    """

    type: Literal["Mutating", "Validating"]
    name: str
    path: str
    resource: Resource
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int | None = None
    """None: the default of the API server."""
    label: str = ""
    """Only objects that have this label are reviewed; empty: all."""
    system_namespaces: bool = True
    """Whether objects of kube-system and of the operator's own namespace are reviewed."""
    reinvocation: bool = False
    """Whether a mutating webhook is called again after others have changed the object."""


class ServiceCertificate(Struct, frozen=True):
    """A Service besides the operator's that answers pods: it gets a certificate and the token keys."""

    secret: str
    """Name of the Secret that the leader keeps for it in the operator's namespace."""
    host: str
    """NAME.NAMESPACE of the Service, or a longer DNS name."""


@dataclass(frozen=True, kw_only=True)
class StartContext:
    """What an API may use when the operator starts."""

    settings: "Settings"
    connection: "Connection"


@dataclass(frozen=True, kw_only=True)
class RunningApi:
    """What an API adds to a running operator."""

    add_controllers: "Callable[[Manager], None]"
    """Adds the API's kinds to the manager: jobs by `add_jobs`, others by `add_kind`."""
    caches: "Sequence[AnyCache]" = ()
    """Further caches that must be filled before the first reconcile."""
    routes: "Callable[[RouteContext], Mapping[str, Route]]" = lambda _context: {}
    """Returns handlers of the endpoint by the first segment of their path."""
    reviews: "Mapping[str, Review]" = field(default_factory=dict)
    """Answers the API's webhooks, by their path. `add_controllers` may still add some."""
    certificates: Sequence[ServiceCertificate] = ()
    leader_tasks: "Sequence[Callable[[], Coroutine[None, None, None]]]" = ()
    """What only the leader does besides reconciling; each runs until it is cancelled. `add_controllers` may
    still add some."""


class NoSettings(Struct, frozen=True):
    """The settings of an API that has none of its own."""


class SettingOption(Struct, frozen=True, kw_only=True):
    """An option of `argosy operator` that sets one of an API's settings, and the chart's value for it."""

    flag: str
    field: str
    """Name of the field in `Api.settings`; dots lead to fields of structs in it. Its type is the option's."""
    value: str
    """Path below the chart's values."""
    help: str
    file: str = ""
    """The value of the option wherever the chart's value is not empty: that names an object, of which the
    chart mounts this file."""
    minimum: int = 0
    """The lowest number that is allowed, if the setting is a number."""


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API that the operator serves."""

    name: str
    """Value of `--api`, and key below `apis` in the chart's values."""
    custom_resources: tuple[type[CustomResource], ...]
    """The kinds whose CRDs the chart installs."""
    rules: tuple[PolicyRule, ...]
    """RBAC rules that the operator needs for this API, besides `rbac.CORE_RULES`; granted only where the API
    is served. Reconcilers that ask for `Exec` need `rbac.EXEC_RULE`."""
    start: "Callable[[StartContext], AbstractAsyncContextManager[RunningApi]]"
    """Starts the API in an operator; what it opened is closed when the operator stops."""
    jobs: tuple[JobKind, ...] = ()
    """The kinds of jobs that the CLI lists."""
    settings: Struct = field(default_factory=NoSettings)
    """Settings of this API alone."""
    options: tuple[SettingOption, ...] = ()
    """Options of the operator by which they are set."""
    apply_config: "Callable[[Settings, str], Settings] | None" = None
    """Returns the settings with what the text of a configuration file says; raises `ConfigError`."""
    webhooks: tuple[Webhook, ...] = ()
    preset: Preset = field(default_factory=Preset)


def setting(settings: Struct, field: str) -> object:
    """Return the value of a field; see `SettingOption.field`."""
    return reduce(getattr, field.split("."), settings)


def with_setting(settings: Struct, field: str, value: object) -> Struct:
    """Return the settings with another value of a field."""
    name, _, rest = field.partition(".")
    return replace(settings, **{name: with_setting(getattr(settings, name), rest, value) if rest else value})


class ConfigError(Exception):
    """A configuration file is invalid; the message names every key that is."""


def start_controllers(
    add: "Callable[[Manager, Settings], None]",
) -> "Callable[[StartContext], AbstractAsyncContextManager[RunningApi]]":
    """Return the `start` of an API that consists of controllers and nothing else."""

    @asynccontextmanager
    async def start(context: StartContext) -> "AsyncIterator[RunningApi]":
        yield RunningApi(add_controllers=lambda manager: add(manager, context.settings))

    return start
