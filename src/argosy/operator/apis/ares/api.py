"""Registers AresJob, the API of AresOperator (`ares.io`), with observers, webhooks and configuration file."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from argosy.kinds.aresjob import AresJob, AresJobCrd
from argosy.operator.apis.ares.settings import NAMESPACE, AresSettings, ares_settings, observer_secret
from argosy.operator.apis.ares.summary import summarize
from argosy.operator.apis.base import Api, Preset, RunningApi, ServiceCertificate, StartContext, Webhook
from argosy.operator.apis.summary import job_kind
from argosy.operator.rbac import CHECKPOINT_RULES, NAME, Condition, PolicyRule, ResourceName, job_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.endpoint import Route, RouteContext
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings

OBSERVERS: Final = Condition(".Values.observer.enabled", "`observer.enabled`")
MUTATING_PATH: Final = "/mutate-ares-io-v1-aresjob"
VALIDATING_PATH: Final = "/validate-ares-io-v1-aresjob"
NODE_PORT: Final = Condition(".Values.observer.nodePort", "`observer.nodePort`")

RULES: Final = (
    *job_rules(AresJob.resource.group, AresJob.resource.plural, patch=True),
    *CHECKPOINT_RULES,
    PolicyRule(resources=("pods",), verbs=("patch",), reason="pods follow annotations of their job"),
    PolicyRule(
        scope="operator",
        resources=("services",),
        names=(
            ResourceName(
                "{{ if .Values.observer.enabled }}{{ .Values.observer.name }}{{ else }}" + NAME + "{{ end }}",
                "`<name>`, or `<observer.name>` with `observer.enabled`",
            ),
        ),
        verbs=("list", "watch"),
        reason="pods in their node's network ask the Service by its address",
    ),
    PolicyRule(
        scope="operator",
        resources=("pods",),
        verbs=("list", "watch"),
        when=(NODE_PORT,),
        reason="pods ask the nodes on which observers run",
    ),
    PolicyRule(
        scope="operator",
        resources=("secrets",),
        names=(ResourceName(observer_secret(NAME), f"`{observer_secret('<name>')}`"),),
        verbs=("get", "update"),
        when=(OBSERVERS,),
        reason="certificate and token keys of the observers",
    ),
)

PRESET: Final = Preset(
    NAMESPACE,
    {
        "name": "ares-operator",
        "observer": {"enabled": True},
        "replicas": 1,
        "podDisruptionBudget": {"enabled": False},
        "features": {"remoteExec": False},
        "gang": {"backend": "auto"},
    },
)


def ares_api(settings: AresSettings = AresSettings()) -> Api:
    """Return the registration of AresJobs with these settings."""
    return Api(
        name="ares",
        custom_resources=(AresJobCrd,),
        jobs=(job_kind(AresJob, "aj", summarize),),
        rules=RULES,
        start=_start,
        settings=settings,
        apply_config=_apply_config,
        webhooks=(
            Webhook(
                type="Mutating",
                name="maresjob.ares.io",
                path=MUTATING_PATH,
                resource=AresJob.resource,
            ),
            Webhook(
                type="Validating",
                name="varesjob.ares.io",
                path=VALIDATING_PATH,
                resource=AresJob.resource,
            ),
        ),
        preset=PRESET,
    )


@asynccontextmanager
async def _start(context: StartContext) -> AsyncIterator[RunningApi]:
    from argosy.dialects.ares.api import ares_job_api
    from argosy.engine.client import Client
    from argosy.operator.apis.ares.observer import Observer
    from argosy.operator.apis.ares.observer_locator import ObserverLocator
    from argosy.operator.apis.ares.webhooks import mutate, validate
    from argosy.operator.webhooks import in_thread

    settings, ares = context.settings, ares_settings(context.settings)

    def routes(endpoint: "RouteContext") -> "Mapping[str, Route]":
        return {"cache": Observer(endpoint, require_tokens=ares.require_tokens).handle}

    if settings.endpoint_only:  # creates no pods, so none have to find an observer
        job_api = ares_job_api(cluster_domain=settings.cluster_domain)
        yield RunningApi(add_controllers=lambda manager: manager.add_jobs(job_api), routes=routes)
        return
    # A client without metrics: the manager's caches of the same kinds have them.
    async with Client(context.connection) as client:
        service = "" if settings.advertise_url else settings.service
        locator = ObserverLocator(client, settings.url, service, ares.observers)

        def add_controllers(manager: "Manager") -> None:
            manager.add_jobs(
                ares_job_api(
                    ares.ttl_after_succeeded,
                    settings.cluster_domain,
                    ares.initializers,
                    locator.observer_address,
                )
            )

        certificates = (
            (ServiceCertificate(observer_secret(settings.name), ares.observers.host),)
            if ares.observers
            else ()
        )
        yield RunningApi(
            add_controllers=add_controllers,
            caches=locator.caches,
            routes=routes,
            reviews={MUTATING_PATH: in_thread(mutate), VALIDATING_PATH: in_thread(validate)},
            certificates=certificates,
        )


def _apply_config(settings: "Settings", text: str) -> "Settings":
    from argosy.operator.apis.ares import config

    return config.apply_config(settings, config.read(text))


ARES: Final = ares_api()
