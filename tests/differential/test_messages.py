"""Common error messages have the wording of kube-apiserver.

Everywhere else in these tests the wording of errors is not compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import Step, apply, delete, get, patch, post, put
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    config_map,
    deployment,
    job,
    pod,
    secret,
    service,
    widget,
)
from tests.support.servers import READER, TokenUser

OBJECT = f"{CONFIG_MAPS}/a"
QUOTAS = "/api/v1/namespaces/$ns/resourcequotas"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
LIMIT = {"hard": {"configmaps": "0"}}
NOT_A_USER = TokenUser("no-such-token", "nobody")

CASES: dict[str, list[Step]] = {
    "missing object, namespace or custom resource: message of kube-apiserver": [
        get(OBJECT),
        delete(f"{JOBS}/none"),
        get("/api/v1/namespaces/none-$ns"),
        post("/api/v1/namespaces/none-$ns/configmaps", config_map()),
        *DEFINED,
        get(f"{WIDGETS}/none"),
    ],
    "name exists: message of kube-apiserver": [MADE, post(CONFIG_MAPS, config_map())],
    "object of that name is terminating: message of kube-apiserver": [
        post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), shown=False),
        delete(OBJECT, shown=False),
        post(CONFIG_MAPS, config_map()),
        patch(OBJECT, {"metadata": {"labels": {"a": "b"}}}, shown=False),
    ],
    "old resourceVersion or another uid: message of kube-apiserver": [
        MADE,
        put(OBJECT, config_map(data={"k": "1"}), shown=False),
        put(OBJECT, config_map(data={"k": "2"}, resourceVersion="$made.metadata.resourceVersion")),
        delete(OBJECT, {"preconditions": {"uid": "other"}}),
    ],
    "apply of another manager's fields: message of kube-apiserver": [
        apply(OBJECT, config_map(data={"k": "1", "l": "1"}), manager="alice", shown=False),
        apply(OBJECT, config_map(data={"k": "2"}), manager="bob"),
        apply(OBJECT, config_map(data={"k": "2", "l": "2"}), manager="bob"),
    ],
    "user without rights: message of kube-apiserver": [
        get(CONFIG_MAPS, user=READER),
        post(PODS, pod(), user=READER),
        get("/api/v1/nodes", user=READER),
        get(f"{PODS}/a/log", user=READER),
        get("/metrics", user=READER),
    ],
    "unknown token: message of kube-apiserver": [get(CONFIG_MAPS, user=NOT_A_USER)],
    "quota exceeded: message of kube-apiserver": [
        post(QUOTAS, {"metadata": {"name": "q"}, "spec": LIMIT}, shown=False),
        patch(f"{QUOTAS}/q/status", {"status": {**LIMIT, "used": {"configmaps": "0"}}}, shown=False),
        get(f"{QUOTAS}/q", until="status.used", shown=False),
        post(CONFIG_MAPS, config_map(), until_code=403),
    ],
    "pod with a missing service account: message of kube-apiserver": [
        post(PODS, pod(serviceAccountName="none"))
    ],
    "invalid names, labels and keys: message of kube-apiserver": [
        post(CONFIG_MAPS, config_map("Bad_Name")),
        post(CONFIG_MAPS, config_map("x" * 254)),
        post(CONFIG_MAPS, {"metadata": {}}),
        post("/api/v1/namespaces", {"metadata": {"name": "with.dots"}}),
        post(SERVICES, service("1.5")),
        post(CONFIG_MAPS, config_map(labels={"bad key!": "1"})),
        post(CONFIG_MAPS, config_map(labels={"app": "no label!"})),
        post(CONFIG_MAPS, config_map(data={"bad key!": "1"})),
        put(OBJECT, config_map("b")),
    ],
    "change of an immutable field: message of kube-apiserver": [
        post(JOBS, job(), shown=False),
        patch(f"{JOBS}/a", {"spec": {"completions": 5}}),
        post(DEPLOYMENTS, deployment(), shown=False),
        patch(f"{DEPLOYMENTS}/a", {"metadata": {"name": "b"}}),
        post(CONFIG_MAPS, {**config_map(), "immutable": True}, shown=False),
        patch(OBJECT, {"data": {"k": "2"}}),
        post(SECRETS, secret(), shown=False),
        patch(f"{SECRETS}/a", {"type": "example.com/other"}),
    ],
    "invalid pod: message of kube-apiserver": [
        post(PODS, pod(containers=[])),
        post(PODS, pod(container={"image": ""})),
        post(PODS, pod(restartPolicy="Sometimes")),
        post(PODS, pod(container={"imagePullPolicy": "Sometimes"})),
        post(PODS, pod(container={"ports": [{"containerPort": 70000}]})),
        post(PODS, pod(container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
        post(PODS, pod(container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
        post(PODS, pod(container={"resources": {"requests": {"nvidia.com/gpu": "1"}}})),
        post(PODS, pod(containers=[{"name": "c", "image": "i"}, {"name": "c", "image": "i"}])),
    ],
    "invalid Deployment, Job or Service: message of kube-apiserver": [
        post(DEPLOYMENTS, deployment(replicas=-1)),
        post(DEPLOYMENTS, deployment(selector={"matchLabels": {"x": "y"}})),
        post(JOBS, job(completionMode="Indexed")),
        post(JOBS, job(template={"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        post(SERVICES, service(ports=[])),
        post(SERVICES, service(type="Nonsense")),
    ],
    "unknown field: message of kube-apiserver": [
        post(f"{CONFIG_MAPS}?fieldValidation=Strict", {**config_map(), "dates": {}}),
        post(f"{PODS}?fieldValidation=Warn", pod(container={"imag": "i"})),
    ],
    "invalid custom resource: message of kube-apiserver": [
        *DEFINED,
        post(WIDGETS, widget(size="big")),
        post(WIDGETS, widget(size=-1)),
        post(WIDGETS, widget(colour="grey")),
        post(WIDGETS, {**widget(), "spec": {}}),
    ],
    "invalid selector: message of kube-apiserver": [
        get(f"{CONFIG_MAPS}?labelSelector=a%3D%3D%3Db"),
        get(f"{PODS}?fieldSelector=spec.nonsense%3Da"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_messages(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare([replace(step, words=True) for step in steps])
