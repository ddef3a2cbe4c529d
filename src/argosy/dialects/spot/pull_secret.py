"""Creates the Secret by which restored replicas pull checkpoint images of a private registry.

It is made of the Secret that the job names for the registry, whose content is held in memory only.
"""

from msgspec import Struct

from argosy.checkpoint.registry_login import (
    DOCKER_CONFIG,
    InvalidLoginError,
    docker_config,
    encoded,
    read_login,
)
from argosy.dialects.spot.job_spec import SpotJob
from argosy.dialects.spot.names import pull_secret_name
from argosy.dialects.spot.record import SpotJobRecord
from argosy.kinds.kubernetes import SecretMetadata
from argosy.plan.actions import Action
from argosy.plan.children import Child
from argosy.plan.contract import Inputs, View
from argosy.plan.diff import changes
from argosy.plan.drivers import SecretContent, secret_view


class PullSecret(Struct, frozen=True):
    """Whether restored replicas can pull their images."""

    ready: bool
    problem: str = ""
    actions: tuple[Action, ...] = ()


def needed_view(job: SpotJob, record: SpotJobRecord) -> View | None:
    """Return the view of the registry's Secret while a replica is about to be restored."""
    recovering = any(r.recovery is not None and not r.current.job for r in record.replicas)
    if job.registry_credentials is None or not recovering:
        return None
    return secret_view(job.registry_credentials)


def prepare(job: SpotJob, record: SpotJobRecord, inputs: Inputs) -> PullSecret:
    """Return what keeps the Secret up to date while a replica is about to be restored."""
    view = needed_view(job, record)
    if view is None:
        return PullSecret(ready=True)
    state = inputs.views.get(view)
    name = pull_secret_name(job.name)
    exists = any(secret.metadata.name == name for secret in inputs.owned(SecretMetadata))
    if state is None or not isinstance(state.value, SecretContent):
        return PullSecret(ready=exists, problem=state.problem if state is not None else "")
    try:
        login = read_login(encoded(state.value.data), job.repository.registry)
    except InvalidLoginError as error:
        where = (
            f"{view.credentials.namespace or job.namespace}/{view.credentials.name}"
            if view.credentials
            else ""
        )
        return PullSecret(ready=False, problem=f"secret {where}: {error}")
    body = {
        "apiVersion": SecretMetadata.resource.api_version,
        "kind": SecretMetadata.resource.kind,
        "type": "kubernetes.io/dockerconfigjson",
        "data": encoded({DOCKER_CONFIG: docker_config(login, job.repository.registry)}),
    }
    return PullSecret(ready=True, actions=changes([Child(SecretMetadata, name, body)], inputs))
