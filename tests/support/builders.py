"""Builds TrainingRuns and workloads for tests.

A builder is immutable: each method returns a new one, so that a test may vary a common base.
"""

from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.workload.model import Json, Role, Rules, Workload

MAIN = "main"


def run(name: str = "mnist", framework: str = "custom", namespace: str = "default") -> "RunBuilder":
    return RunBuilder(name=name, namespace=namespace, spec={"framework": framework, "roles": {}})


def pod_template(image: str = "python", **container: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": MAIN, "image": image, **container}]}}


class RunBuilder(Struct, frozen=True):
    """A TrainingRun as a user writes it."""

    name: str
    namespace: str
    spec: dict[str, object]
    labels: dict[str, str] = field(default_factory=dict)

    def role(self, name: str = "worker", replicas: int = 1, **more: object) -> Self:
        """Add a role with one container, unless the fields contain a `template`."""
        roles = dict(_object(self.spec["roles"]))
        roles[name] = {"replicas": replicas, "template": pod_template(), **more}
        return self.having(roles=roles)

    def gang(self, **fields: object) -> Self:
        return self.having(gang=dict(fields))

    def limits(self, **fields: object) -> Self:
        return self.having(limits={**_object(self.spec.get("limits")), **fields})

    def suspended(self) -> Self:
        return self.having(suspend=True)

    def labelled(self, **labels: str) -> Self:
        return replace(self, labels={**self.labels, **labels})

    def having(self, **fields: object) -> Self:
        """Set any field of the spec by its name in the API."""
        return replace(self, spec={**self.spec, **fields})

    def build(self) -> dict[str, object]:
        metadata: dict[str, object] = {"name": self.name, "namespace": self.namespace}
        if self.labels:
            metadata["labels"] = self.labels
        return {
            "apiVersion": "argosy.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": metadata,
            "spec": self.spec,
        }


def workload(*roles: Role, name: str = "mnist", rules: Rules = Rules(), **fields: object) -> Workload:
    """A workload as a dialect returns it; `fields` are those of `Workload`."""
    base = Workload(
        kind="TrainingRun",
        api_version="argosy.dev/v1alpha1",
        namespace="default",
        name=name,
        uid=f"uid-of-{name}",
        generation=1,
        framework="custom",
        roles={role.name: role for role in roles},
        rules=rules,
    )
    return replace(base, **fields)


def role(name: str = "worker", replicas: int = 1, template: Json | None = None, **fields: object) -> Role:
    return replace(Role(name=name, replicas=replicas, template=template or pod_template()), **fields)


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
