"""What the pods of every namespace need: the account `default`, and the authority's certificate.

The API server makes them together with a namespace, so that a pod can be created right after it; the
controllers put them back when somebody deletes or empties them.
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
