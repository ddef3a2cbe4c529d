"""kubectl accepts and refuses the same lists and reviews with our server as with a real one.

kubectl validates a `kind: List` and reviews itself, by the OpenAPI v2 document. The local one has no fields
and refuses what is wrong as each object is written, so the words of a refusal differ.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.differential import Caller, get, post
from tests.support.manifests import DEFINITIONS, definition
from tests.support.parameters import marked
from tests.support.servers import ADMIN, Server

KUBECTL = Path(sys.executable).with_name("kubectl")
GROUP = "kubectl.example.com"
WIDGET = "com~example~kubectl~v1~Widget"
LOGGED = re.compile(r"^([IWE])\d{4} [\d:.]+ +\d+ ", re.MULTILINE)

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {colour: red}}"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
OBJECT = f"{{apiVersion: {GROUP}/v1, kind: Widget, metadata: {{name: w}}, spec: {{size: 2, port: http}}}}"
TOKEN = f"{{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {{token: {ADMIN.token}}}}}"
ACCESS = (
    "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview,"
    " spec: {user: bob, resourceAttributes: {verb: get, resource: pods}}}"
)


def of(*items: str) -> str:
    return f"{{apiVersion: v1, kind: List, items: [{', '.join(items)}]}}"


MANIFESTS = {
    "list of ConfigMaps": of(CONFIG, CONFIG.replace("name: a", "name: b")),
    "list of several kinds": of(CONFIG, POD, OBJECT),
    "empty list": of(),
    "list with an unknown field of a ConfigMap": of(CONFIG.replace("data:", "dates:"), POD),
    "list with an unknown field of a container": of(CONFIG, POD.replace("image: i", "imag: i")),
    "list with an unknown field of a custom resource": of(CONFIG, OBJECT.replace("port:", "harbour:")),
    "list with a custom resource without a required field": of(OBJECT.replace("size: 2, ", "")),
    "list with a string for a number": of(OBJECT.replace("size: 2", "size: big")),
    "list with fields that the schema preserves": of(OBJECT.replace("port: http", "free: {a: {b: 1}}")),
    "list with an object of an unknown kind": of("{apiVersion: v1, kind: None, metadata: {name: a}}"),
    "list with an object without a kind": of("{apiVersion: v1, metadata: {name: a}}"),
    "token review": TOKEN,
    "token review with an unknown field": TOKEN.replace("token:", "tokens: 1, token:"),
    "token review without a spec": "{apiVersion: authentication.k8s.io/v1, kind: TokenReview}",
    "access review": ACCESS,
    "access review with an unknown field": ACCESS.replace("verb:", "verbs: x, verb:"),
    "access review with a list for a string": ACCESS.replace("user: bob", "user: [bob]"),
    "custom resource": OBJECT,
    "custom resource with an unknown field": OBJECT.replace("port:", "harbour:"),
}
VALIDATE = ("strict", "warn", "ignore")


@pytest.fixture(scope="module")
def run(
    real_apiserver: Server, local_apiserver: Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[str]]:
    """The same command against both servers, in a new namespace: what each printed, and its exit code."""
    servers = (real_apiserver, local_apiserver)
    homes = [tmp_path_factory.mktemp(server.name) for server in servers]
    for server in servers:
        _define(server)

    def run(namespace: str, *arguments: str, stdin: str) -> list[str]:
        return [
            _kubectl(server, home, namespace, arguments, stdin)
            for server, home in zip(servers, homes, strict=True)
        ]

    return run


def _define(server: Server) -> None:
    """A custom resource, once the v2 document shows it; that of the local server is never behind."""
    widgets = json.loads(json.dumps(definition()).replace("$ns.example.com", GROUP))
    with Caller(server) as caller:
        caller.send(post(DEFINITIONS, widgets))
        if server.name == "kubernetes":
            caller.send(get("/openapi/v2", until=f"definitions.{WIDGET}"))


def _kubectl(server: Server, home: Path, namespace: str, arguments: tuple[str, ...], stdin: str) -> str:
    for name, body in (("", {"name": namespace}), (f"/{namespace}/serviceaccounts", {"name": "default"})):
        with Caller(server) as caller:
            caller.send(post(f"/api/v1/namespaces{name}", {"metadata": body}))
    done = subprocess.run(
        [str(KUBECTL), f"--namespace={namespace}", *arguments, "-f", "-"],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(home)},
        check=False,
    )
    return LOGGED.sub(r"\1 ", f"{done.stdout}{done.stderr}(exit code {done.returncode})")


USUAL = {"strict"}
"""How everything is validated by default."""
SAMPLE = {"list with an unknown field of a container", "custom resource with an unknown field"}
"""What is also validated otherwise by default."""
CASES = [
    pytest.param(
        ("create" if "review" in what else "apply", f"--validate={how}"),
        manifest,
        id=f"{how}: {what}",
        marks=[] if how in USUAL or what in SAMPLE else [pytest.mark.long],
    )
    for how in VALIDATE
    for what, manifest in MANIFESTS.items()
    if how == "strict" or " with " in what
]


@pytest.mark.parametrize(("command", "manifest"), CASES)
def test_kubectl_has_the_same_result_as_with_kube_apiserver(
    run: Callable[..., list[str]], command: tuple[str, ...], manifest: str
) -> None:
    want, got = run(f"t{time.monotonic_ns()}", *command, stdin=manifest)
    if want.endswith("(exit code 0)"):
        assert got == want
    else:
        assert got.rpartition("(")[2] == want.rpartition("(")[2], f"{want}\n{got}"


@pytest.mark.parametrize("how", marked({how: how for how in VALIDATE}, USUAL, pytest.mark.long))
def test_apply_of_a_review_is_an_error(run: Callable[..., list[str]], how: str) -> None:
    for manifest in (TOKEN, ACCESS):
        want, got = run("default", "apply", f"--validate={how}", stdin=manifest)
        assert got == want
        assert "resource name may not be empty" in got


def test_create_of_a_review_prints_its_status(run: Callable[..., list[str]]) -> None:
    for manifest in (TOKEN, ACCESS):
        want, got = run("default", "create", "-o", "yaml", stdin=manifest)
        assert got == want
        assert "status:" in got


def test_second_apply_of_a_list_configures_changed_objects_only(run: Callable[..., list[str]]) -> None:
    namespace = f"t{time.monotonic_ns()}"
    for manifest in (of(CONFIG, POD, OBJECT), of(CONFIG.replace("red", "blue"), POD, OBJECT)):
        want, got = run(namespace, "apply", stdin=manifest)
        assert got == want
    assert "configmap/a configured\npod/p unchanged\n" in got
