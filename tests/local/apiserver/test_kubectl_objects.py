"""Common commands of kubectl work with the local API server."""

import json
import subprocess
from typing import Protocol

import pytest

pytestmark = pytest.mark.long  # tests/differential compares the same commands with a real apiserver


class Kubectl(Protocol):
    namespace: str

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0, seconds: float = 30) -> str: ...
    def command(self, *arguments: str) -> list[str]: ...
    @property
    def environment(self) -> dict[str, str]: ...


CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {colour: red}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
"""
WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 1, default: 3, description: How big it is.}
              replicas: {type: integer}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def test_apply_prints_created_then_unchanged_then_configured(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=CONFIG)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=CONFIG)
    assert "configured" in kubectl("apply", "-f", "-", stdin=CONFIG.replace("red", "blue"))
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "blue"


def test_diff_shows_the_changes_of_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert kubectl("diff", "-f", "-", stdin=CONFIG) == ""
    shown = kubectl("diff", "-f", "-", stdin=CONFIG.replace("red", "blue"), code=1)
    assert "-  colour: red" in shown
    assert "+  colour: blue" in shown


def test_server_side_apply_conflicts_until_forced(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=CONFIG)
    changed = CONFIG.replace("red", "green")
    refused = kubectl("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=changed, code=1)
    assert 'conflict with "one": .data.colour' in refused
    kubectl("apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", stdin=changed)
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "green"


def test_error_of_strict_validation_contains_the_unknown_field(kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("replicas", "replicaz"), code=1)
    assert 'unknown field "spec.replicaz"' in refused


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("get", "cm", "-l", "app=web", "-o", "name"), "configmap/settings"),
        (("get", "cm", "--field-selector", "metadata.name=settings", "-o", "name"), "configmap/settings"),
        (("get", "cm", "settings", "-o", "yaml"), "colour: red"),
        (("get", "cm", "settings", "-o", "json"), '"colour": "red"'),
        (("get", "cm", "settings", "-o", "wide"), "settings"),
        (("get", "cm", "-A"), "kube-system"),
        (("get", "cm", "--chunk-size=1"), "settings"),
        (("describe", "cm", "settings"), "colour:"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_get(kubectl: Kubectl, arguments: tuple[str, ...], wanted: str) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert wanted in kubectl(*arguments)


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"data":{"colour":"blue"}}'),
        ("json", '[{"op":"replace","path":"/data/colour","value":"blue"}]'),
        ("strategic", '{"data":{"colour":"blue"}}'),
    ],
)
def test_patch(kubectl: Kubectl, kind: str, patch: str) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("patch", "cm", "settings", f"--type={kind}", "-p", patch)
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "blue"


def test_label_annotate_and_replace(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("label", "cm", "settings", "tier=front")
    kubectl("annotate", "cm", "settings", "note=hello")
    assert kubectl("get", "cm", "-l", "tier=front", "-o", "name") == "configmap/settings\n"
    kubectl("replace", "-f", "-", stdin=CONFIG.replace("red", "black"))
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "black"


def test_scale_of_a_deployment_and_of_a_custom_resource(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("scale", "deployment", "web", "--replicas=5")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "5"
    group = f"{kubectl.namespace}.example.com"
    kubectl("apply", "-f", "-", stdin=WIDGETS.replace("GROUP", group))
    kubectl("wait", "--for=condition=Established", f"crd/widgets.{group}", "--timeout=10s")
    kubectl(
        "apply",
        "-f",
        "-",
        stdin=f"{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: a}}, spec: {{}}}}",
    )
    kubectl("scale", f"widgets.{group}/a", "--replicas=4")
    assert kubectl("get", f"widgets.{group}", "a", "-o", "jsonpath={.spec.replicas}") == "4"


def test_kind_is_served_until_its_definition_is_deleted_with_its_objects(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    kubectl("apply", "-f", "-", stdin=WIDGETS.replace("GROUP", group))
    kubectl("wait", "--for=condition=Established", f"crd/widgets.{group}", "--timeout=10s")
    widget = f"{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: a}}, spec: {{size: SIZE}}}}"
    refused = kubectl("apply", "-f", "-", stdin=widget.replace("SIZE", "0"), code=1)
    assert "spec.size in body should be greater than or equal to 1" in refused
    kubectl("apply", "-f", "-", stdin=widget.replace("{size: SIZE}", "{}"))
    assert kubectl("get", f"widgets.{group}").split() == ["NAME", "SIZE", "a", "3"]
    assert "How big it is." in kubectl("explain", "widgets.spec.size", f"--api-version={group}/v1")
    kubectl("delete", "crd", f"widgets.{group}", "--timeout=10s")
    assert "the server doesn't have a resource type" in kubectl("get", f"widgets.{group}", code=1)


def test_get_watch_prints_changes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    command = kubectl.command("get", "cm", "settings", "-w", "-o", "jsonpath={.data.colour}{'\\n'}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kubectl.environment) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline() == "red\n"
            kubectl("apply", "-f", "-", stdin=CONFIG.replace("red", "blue"))
            assert watching.stdout.readline() == "blue\n"
        finally:
            watching.kill()


def test_wait_for_a_condition_a_value_and_a_deletion(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=busybox")
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Pending", "--timeout=10s")
    status = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    kubectl("patch", "pod", "p", "--subresource=status", "-p", status)
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=10s")
    kubectl("delete", "pod", "p", "--wait=false")
    kubectl("wait", "pod/p", "--for=delete", "--timeout=10s")


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "job", "j", "--image=busybox", "--", "true"),
        ("create", "deployment", "d", "--image=nginx"),
        ("create", "secret", "generic", "s", "--from-literal=a=b"),
        ("create", "serviceaccount", "robot"),
        ("create", "role", "reader", "--verb=get", "--resource=pods"),
        ("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot"),
        ("create", "service", "clusterip", "svc", "--tcp=80:80"),
        ("create", "quota", "q", "--hard=pods=3"),
        ("create", "poddisruptionbudget", "budget", "--selector=app=web", "--min-available=1"),
        ("create", "priorityclass", "NAMESPACE", "--value=5"),
        ("create", "configmap", "c", "--from-literal=a=b"),
        ("create", "token", "default"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_create(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    kubectl(*[argument.replace("NAMESPACE", kubectl.namespace) for argument in arguments])


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "PersistentVolume", "Ingress"])
def test_kind_without_controller_is_not_served(kubectl: Kubectl, kind: str) -> None:
    error = kubectl("get", kind, code=1)
    assert f'the server doesn\'t have a resource type "{kind}"' in error


def test_delete_by_label_and_with_grace(kubectl: Kubectl) -> None:
    for name in ("a", "b"):
        kubectl("run", name, "--image=busybox", "--labels=app=x")
    kubectl("delete", "pod", "-l", "app=x", "--grace-period=1", "--timeout=10s")
    assert "No resources found" in kubectl("get", "pods")
    kubectl("run", "a", "--image=busybox")
    kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("delete", "deployment", "web", "--cascade=orphan", "--wait=false")
    shown = kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.finalizers}")
    assert shown == '["orphan"]'


def test_events_are_listed(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=busybox")
    uid = kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": kubectl.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": kubectl.namespace, "uid": uid},
        "reason": "Pulled",
        "message": "the image is there",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "the image is there" in kubectl("get", "events")
    assert "the image is there" in kubectl("describe", "pod", "p")


def test_auth_can_i_and_whoami(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").startswith("yes")
    assert "testing-admin" in kubectl("auth", "whoami")
    denied = kubectl("auth", "can-i", "get", "pods", "--as=nobody", code=1)
    assert "no" in denied


def test_resources_versions_and_explain(kubectl: Kubectl) -> None:
    assert "deployments" in kubectl("api-resources")
    assert "apps/v1" in kubectl("api-versions")
    assert "Server Version: v1.36" in kubectl("version")
    assert "terminationGracePeriodSeconds" in kubectl("explain", "pod.spec")


def test_creation_in_a_terminating_namespace_is_refused(kubectl: Kubectl) -> None:
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
    assert kubectl("get", "ns", kubectl.namespace, "-o", "jsonpath={.status.phase}") == "Terminating"
    refused = kubectl("create", "configmap", "late", code=1)
    assert "because it is being terminated" in refused


def test_error_of_an_unsupported_subresource_contains_an_alternative(kubectl: Kubectl) -> None:
    container = {"name": "main", "image": "busybox"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"nodeName": "n1", "containers": [container]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubectl("patch", "pod", "a", "--subresource=status", "-p", '{"status":{"phase":"Running"}}')
    output = kubectl("port-forward", "pod/a", "18080:80", code=1)
    assert "the local control plane does not forward ports" in output
    assert "kubectl exec" in output
    raw = f"/api/v1/namespaces/{kubectl.namespace}/pods/a/proxy/x"
    assert "no proxy" in kubectl("get", "--raw", raw, code=1)
