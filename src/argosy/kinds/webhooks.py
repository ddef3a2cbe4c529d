"""Admission webhook configurations, as far as the operator reads them to inject its CA bundle.

The structs lack fields of the real objects, so they must never be written back.
"""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

GROUP = "admissionregistration.k8s.io"


class ClientConfig(Struct, frozen=True):
    ca_bundle: str = field(default="", name="caBundle")


class Webhook(Struct, frozen=True, rename="camel"):
    name: str
    client_config: ClientConfig = ClientConfig()


class MutatingWebhookConfiguration(Struct, frozen=True):
    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
    )

    metadata: ObjectMeta
    webhooks: tuple[Webhook, ...] = ()


class ValidatingWebhookConfiguration(Struct, frozen=True):
    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
    )

    metadata: ObjectMeta
    webhooks: tuple[Webhook, ...] = ()
