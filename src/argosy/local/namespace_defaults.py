"""Objects that every namespace has: the service account `default` and the cluster's CA certificate.

The API server creates them together with a namespace, so that a pod can be created right after it. A
controller restores them when they are deleted or emptied.
"""

from typing import Final

from argosy.kinds.meta import Json

SERVICE_ACCOUNT: Final = "default"
CA_CONFIG_MAP: Final = "kube-root-ca.crt"


def service_account(namespace: str) -> Json:
    return {"metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace}}


def ca_config_map(namespace: str, certificate: str) -> Json:
    note = (
        "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
        "such as the internal service IP or kubernetes.default.svc. "
        "No other usage is guaranteed across distributions of Kubernetes clusters."
    )
    metadata = {
        "name": CA_CONFIG_MAP,
        "namespace": namespace,
        "annotations": {"kubernetes.io/description": note},
    }
    return {"metadata": metadata, "data": ca_data(certificate)}


def ca_data(certificate: str) -> dict[str, str]:
    return {"ca.crt": certificate}
