"""Common kubectl commands, verb by verb: the real kubectl prints the same for both servers.

A tour is a list of commands in its own namespace. `$ns` in a command is that namespace; a manifest next to a
command is its standard input.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.differential import Caller, delete, post
from tests.support.normalize import Normaliser
from tests.support.parameters import marked
from tests.support.servers import Server

KUBECTL = Path(sys.executable).with_name("kubectl")
LOGGED = re.compile(r"^([IWE])\d{4} [\d:.]+ +\d+ ", re.MULTILINE)
DRAWN = {
    re.compile(r"\b10\.(?!0\.0\.1\b)\d+\.\d+\.\d+\b"): "<cluster ip>",
    re.compile(r"\b3[0-2]\d{3}\b"): "<node port>",
    re.compile(r"(?m)^(.*[Aa]ge:? +|.* )\d+[smh]( ago)?$"): r"\1<age>",
    re.compile(r"kubectl-edit-\w+"): "<edited file>",
    re.compile(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} \+0000"): "<time>",
}
Command = str | tuple[str, str]
OFTEN_CREATED = ("configmap", "service clusterip s", "quota")
"""What `create` is tested with by default; `test_objects` and others create all kinds, without kubectl."""
RARE = {"annotate and label", "set", "rollout and scale", "cluster-info, cordon, drain and taint"}
"""Tours only for `--long`: kubectl sends patches and creates Services in them, as in other tours."""

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {app: a}}, data: {colour: red}}"
DEPLOYMENT = (
    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2,"
    " selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}},"
    " spec: {containers: [{name: one, image: i}, {name: two, image: i}]}}}}"
)
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
NODE = "{apiVersion: v1, kind: Node, metadata: {name: $ns}}"
ROLE = (
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r},"
    " rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"
)

CREATED = (
    "configmap c --from-literal=a=b --from-literal=n=1",
    "secret generic s --from-literal=a=b",
    "secret docker-registry d --docker-username=u --docker-password=p --docker-server=r",
    "service clusterip s --tcp=80:8080",
    "service clusterip h --clusterip=None",
    "service nodeport n --tcp=80",
    "service loadbalancer l --tcp=80",
    "service externalname e --external-name=x.example.com",
    "role r --verb=get,list --resource=pods,deployments.apps --resource-name=a",
    "rolebinding b --role=r --user=u --group=g --serviceaccount=$ns:default",
    "clusterrole $ns --verb=get --non-resource-url=/x",
    "clusterrole $ns-sum --aggregation-rule=a=b",
    "clusterrolebinding $ns --clusterrole=view --user=u",
    "serviceaccount sa",
    "quota q --hard=pods=2,count/jobs.batch=1",
    "deployment d --image=i --replicas=2 --port=80",
    "job j --image=i -- echo a",
    "poddisruptionbudget p --selector=a=b --min-available=1",
    "priorityclass $ns --value=5 --description=five",
    "namespace $ns-other",
)
RARELY_CREATED = {f"create {what}" for what in CREATED if not what.startswith(OFTEN_CREATED)}
TOURS: dict[str, list[Command]] = {
    **{
        f"create {what}": [
            f"create {what} --dry-run=client -o yaml",
            f"create {what} --dry-run=server -o yaml",
            f"create {what}",
            f"create {what}",
        ]
        for what in CREATED
    },
    "create token and create -f": [
        "create token default",
        "create token default --duration=1m",
        "create token none",
        ("create -f -", CONFIG),
        ("create -f -", CONFIG),
        ("create --save-config -f - -o yaml", CONFIG.replace("name: c", "name: d")),
        ("create --dry-run=server -f -", POD),
        ("create --validate=strict -f -", POD.replace("image", "imagine")),
        "create configmap",
    ],
    "edit": [
        ("apply -f -", CONFIG),
        ("apply -f -", DEPLOYMENT),
        "EDITOR='sed -i s/red/blue/' edit configmap c",
        "EDITOR=true edit configmap c",
        "EDITOR='sed -i s/blue/green/' edit configmap c -o json",
        "EDITOR='sed -i s/green/white/' edit configmap c --save-config",
        "EDITOR='sed -i s/replicas:.2/replicas:.5/' edit deployment d",
        "EDITOR='sed -i s/name:.c/name:.e/' edit configmap c",
        "EDITOR=true edit configmap none",
        "get configmap c -o yaml",
        "get deployment d -o jsonpath={.spec.replicas}",
    ],
    "replace": [
        ("replace -f -", CONFIG),
        ("create -f -", CONFIG),
        ("replace -f -", CONFIG.replace("red", "blue")),
        ("replace --dry-run=server -f -", CONFIG.replace("red", "green")),
        ("replace --dry-run=client -f -", CONFIG.replace("red", "green")),
        ("replace -f -", CONFIG.replace("name: c", "name: c, resourceVersion: '1'")),
        ("replace --force -f -", CONFIG.replace("red", "black")),
        ("replace --force -f -", CONFIG.replace("name: c", "name: new")),
        ("replace --force --cascade=foreground --grace-period=0 -f -", POD),
        ("replace --raw /api/v1/namespaces/$ns/configmaps/none -f -", "{}"),
        "get configmap -o yaml",
    ],
    "annotate and label": [
        ("apply -f -", CONFIG),
        "annotate configmap c note=a",
        "annotate configmap c note=a",
        "annotate configmap c note=b",
        "annotate configmap c note=b --overwrite",
        "annotate configmap c other=x --resource-version=1",
        "annotate configmap c 'bad key=x'",
        "annotate configmaps --all seen=yes --dry-run=server -o yaml",
        "annotate configmaps --all seen=yes --dry-run=client",
        "annotate configmaps -l app=a seen=yes",
        "annotate configmap c note-",
        "annotate configmap c note-",
        "annotate configmap none a=b",
        ("annotate -f - a=b --local -o yaml", CONFIG),
        "label configmap c colour=red",
        "label configmap c colour=blue",
        "label configmap c colour=blue --overwrite",
        "label configmap c colour=not/a/value --overwrite",
        "label configmap c colour-",
        "get configmap c -o yaml",
    ],
    "set": [
        ("apply -f -", DEPLOYMENT),
        "set image deployment/d one=v2",
        "set image deployment/d '*=v3' --dry-run=server",
        "set image deployment/d none=v3",
        "set image deployment/d one=v2",
        "set env deployment/d A=b",
        "set env deployment/d --list",
        "set env deployment/d A-",
        "set resources deployment/d -c two --limits=cpu=1,memory=1Gi",
        "set serviceaccount deployment/d other",
        "set image deployment/none one=v2",
        "create rolebinding b --role=r --user=u",
        "set subject rolebinding b --user=v --group=w",
        "create service clusterip s --tcp=80",
        "set selector service s app=b",
        "get deployment/d rolebinding/b service/s -o yaml",
    ],
    "rollout and scale": [
        ("apply -f -", DEPLOYMENT),
        "rollout pause deployment/d",
        "rollout pause deployment/d",
        "rollout resume deployment/d",
        "rollout resume deployment/d",
        "rollout history deployment/d",
        "rollout undo deployment/d",
        "rollout undo deployment/d --to-revision=3",
        "rollout status deployment/d --watch=false",
        "rollout restart deployment/none",
        "rollout restart configmap/c",
        "scale deployment/d --replicas=3",
        "scale deployment/d --current-replicas=2 --replicas=4",
        "scale deployment/d --replicas=-1",
        "scale deployments --all --replicas=1 --dry-run=server",
        "scale --replicas=1 configmap/c",
        "expose deployment d --port=80 --target-port=http",
        "expose deployment d --port=80 --name=other --dry-run=server -o yaml",
        "get deployments,services -o name",
    ],
    "delete": [
        ("apply -f -", CONFIG),
        "delete configmap c --dry-run=client",
        "delete configmap c --dry-run=server",
        "delete configmap c",
        "delete configmap c",
        "delete configmap c --ignore-not-found",
        ("apply -f -", DEPLOYMENT),
        "delete deployment d --cascade=foreground --wait=false",
        "get deployment d -o jsonpath={.metadata.finalizers}",
        'patch deployment d --type=merge -p {"metadata":{"finalizers":[]}}',
        ("apply -f -", DEPLOYMENT),
        "delete deployment d --cascade=orphan --wait=false",
        "get deployment d -o jsonpath={.metadata.finalizers}",
        'patch deployment d --type=merge -p {"metadata":{"finalizers":[]}}',
        "delete deployment d --cascade=somehow",
        ("apply -f -", POD),
        "delete pod p --grace-period=0 --force",
        ("apply -f -", POD),
        "delete pods --all --now",
        "create configmap x",
        "create configmap y",
        "delete configmaps -l app=none",
        "delete configmaps --field-selector=metadata.name=x",
        "delete configmap,secret --all",
        "delete --raw /api/v1/namespaces/$ns/configmaps/none",
        ("delete -f -", CONFIG),
    ],
    "patch": [
        ("apply -f -", DEPLOYMENT),
        'patch deployment d -p {"spec":{"replicas":4}}',
        'patch deployment d -p {"spec":{"replicas":4}}',
        'patch deployment d -p {"spec":{"replicas":6}} --dry-run=server -o yaml',
        'patch deployment d -p {"spec":{"replicas":6}} --dry-run=client',
        'patch deployment d --type=json -p [{"op":"remove","path":"/spec/none"}]',
        'patch deployment d --type=merge -p {"spec":{"selector":{"matchLabels":{"a":"b"}}}}',
        'patch deployment d --subresource=status --type=merge -p {"status":{"replicas":1}}',
        'patch deployment d --subresource=scale --type=merge -p {"spec":{"replicas":9}}',
        "get deployment d -o yaml",
    ],
    "apply": [
        ("apply --dry-run=client -f - -o yaml", CONFIG),
        ("apply --dry-run=server -f - -o yaml", CONFIG),
        ("apply -f -", CONFIG),
        "apply view-last-applied configmap c",
        ("apply set-last-applied -f -", CONFIG.replace("red", "blue")),
        ("apply --server-side -f -", CONFIG.replace("red", "green")),
        ("apply --server-side --field-manager=other -f -", CONFIG.replace("red", "white")),
        ("apply --server-side --field-manager=other --force-conflicts -f -", CONFIG.replace("red", "white")),
        ("apply --prune -l app=a --prune-allowlist=core/v1/ConfigMap -f -", CONFIG),
        "get configmap c -o yaml --show-managed-fields",
    ],
    "auth": [
        "auth whoami",
        "auth can-i create pods",
        "auth can-i '*' '*'",
        "auth can-i list pods --as=nobody",
        "auth can-i list pods --as=nobody --quiet",
        "auth can-i get /healthz --as=nobody",
        "auth can-i get /logs --as=nobody",
        "auth can-i dance pods",
        "auth can-i get nonsense",
        "create role r --verb=get,list --resource=pods --resource=pods/log",
        "create rolebinding b --role=r --user=nobody",
        "WAIT auth can-i list pods --as=nobody",
        "auth can-i list pods --as=nobody -A",
        "auth can-i get pods --subresource=log --as=nobody",
        "auth can-i get pods/one --as=nobody",
        "auth can-i delete pods --as=nobody",
        "auth can-i get pods --as=nobody --as-group=system:masters",
        "get configmaps --as=nobody",
        "get pods --as=nobody",
        ("auth reconcile -f -", ROLE),
        ("auth reconcile -f - --dry-run=server", ROLE.replace("[get]", "[get, watch]")),
        ("auth reconcile -f -", ROLE.replace("[get]", "[watch]")),
        "get role r -o yaml",
        "describe role r",
        "describe rolebinding b",
    ],
    "cluster-info, cordon, drain and taint": [
        "cluster-info",
        ("create -f -", NODE),
        "cordon $ns",
        "cordon $ns",
        "uncordon $ns",
        "taint node $ns a=b:NoSchedule",
        "taint node $ns a=b:NoSchedule",
        "taint node $ns a-",
        "drain $ns",
        "uncordon $ns",
        "delete node $ns",
    ],
    "describe": [
        "create configmap c --from-literal=a=b",
        "describe configmap c",
        "create quota q --hard=pods=2,count/jobs.batch=1",
        "describe quota q",
        "create serviceaccount sa",
        "describe serviceaccount sa",
        ("apply -f -", DEPLOYMENT),
        "describe deployment d",
        "create service clusterip s --tcp=80",
        "describe service s",
        "run p --image=i --labels=a=b",
        "describe pod p",
    ],
}


@pytest.fixture(scope="module")
def tour(
    real_apiserver: Server, local_apiserver: Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Sequence[Command]], None]:
    """Say the commands to both servers, and compare what kubectl tells of each."""
    servers = (real_apiserver, local_apiserver)
    homes = {server.name: tmp_path_factory.mktemp(server.name) for server in servers}

    def run(commands: Sequence[Command]) -> None:
        namespace = f"t{time.monotonic_ns()}"
        for server in servers:
            _prepare(server, namespace)
        with ThreadPoolExecutor(2) as pool:
            for command in commands:
                results = [
                    pool.submit(_say, server, homes[server.name], namespace, command) for server in servers
                ]
                want, got = (future.result() for future in results)
                assert got == want, f"kubectl {command}"
        for server in servers:
            _tidy(server, namespace)

    return run


def _prepare(server: Server, namespace: str) -> None:
    """Create a namespace with the objects that the local server creates in it, and a controller elsewhere."""
    with Caller(server) as caller:
        for path, name in (("", namespace), (f"/{namespace}/serviceaccounts", "default")):
            caller.send(post(f"/api/v1/namespaces{path}", {"metadata": {"name": name}}))
        caller.send(delete(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"))


def _tidy(server: Server, namespace: str) -> None:
    """Other tests run controllers on these servers: nothing is left for them to act upon."""
    with Caller(server) as caller:
        for path in ("apps/v1 deployments", "batch/v1 jobs"):
            group, kind = path.split()
            caller.send(delete(f"/apis/{group}/namespaces/{namespace}/{kind}?propagationPolicy=Background"))


def _say(server: Server, home: Path, namespace: str, command: Command) -> str:
    words, stdin = command if isinstance(command, tuple) else (command, "")
    parts = shlex.split(words.replace("$ns", namespace), posix="'" in words or '"' not in words)
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(home)}
    patient = parts[0] == "WAIT"
    parts = parts[1:] if patient else parts
    while "=" in parts[0]:
        name, _, value = parts.pop(0).partition("=")
        environment[name] = value
    deadline = time.monotonic() + 20
    while True:
        done = subprocess.run(
            [str(KUBECTL), f"--namespace={namespace}", *parts],
            input=stdin.replace("$ns", namespace),
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        # The authorizer of the reference sees changes with a delay.
        if not patient or done.returncode == 0 or time.monotonic() > deadline:
            return _normal(server, f"{done.stdout}{done.stderr}(ended with {done.returncode})")
        time.sleep(0.1)


def _normal(server: Server, text: str) -> str:
    normal = str(Normaliser(server.url).normal(LOGGED.sub(r"\1 ", text)))
    for pattern, shown in DRAWN.items():
        normal = pattern.sub(shown, normal)
    return normal


@pytest.mark.parametrize("commands", marked(TOURS, TOURS.keys() - RARELY_CREATED - RARE, pytest.mark.long))
def test_kubectl_verb(tour: Callable[[Sequence[Command]], None], commands: list[Command]) -> None:
    tour(commands)
