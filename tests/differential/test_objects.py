"""Creating, reading and replacing objects of any kind."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, delete, get, post, put
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    SERVICES,
    config_map,
    deployment,
    job,
    service,
)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
SECRETS = "/api/v1/namespaces/$ns/secrets"
EVENTS = "/api/v1/namespaces/$ns/events"

CASES: dict[str, list[Step]] = {
    "finalize of a namespace with an invalid finalizer: rejected": [
        put(
            "/api/v1/namespaces/$ns/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "$ns"},
                "spec": {"finalizers": ["not qualified"]},
            },
        ),
    ],
    "create, then get: same object with server-set metadata": [
        post(CONFIG_MAPS, config_map(labels={"a": "1"}, annotations={"b": "2"})),
        get(f"{CONFIG_MAPS}/a"),
    ],
    "create without kind and apiVersion: accepted": [
        post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    ],
    "create with another kind than in the path: rejected": [
        post(CONFIG_MAPS, {**config_map(data={}), "kind": "Secret"})
    ],
    "create with another apiVersion than in the path: rejected": [
        post(CONFIG_MAPS, {**config_map(), "apiVersion": "v2"})
    ],
    "create with another namespace than in the path: rejected": [
        post(CONFIG_MAPS, config_map(namespace="other"))
    ],
    "create in a missing namespace: 404": [post("/api/v1/namespaces/no-such/configmaps", config_map())],
    "create with an existing name: 409": [
        post(CONFIG_MAPS, config_map()),
        post(CONFIG_MAPS, config_map()),
    ],
    "get, delete and update of a missing object: 404": [
        get(f"{CONFIG_MAPS}/none"),
        delete(f"{CONFIG_MAPS}/none"),
        put(f"{CONFIG_MAPS}/none", config_map("none", resourceVersion="1")),
    ],
    "update of a missing object without a resourceVersion: 404": [
        put(f"{CONFIG_MAPS}/new", config_map("new"))
    ],
    "generateName: name with that prefix": [post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})],
    "generateName of 250 characters: cut": [post(CONFIG_MAPS, {"metadata": {"generateName": "x" * 250}})],
    "create without a name: rejected": [post(CONFIG_MAPS, {"metadata": {}})],
    "name with capital letters: rejected": [post(CONFIG_MAPS, config_map("Big"))],
    "name of 254 characters: rejected": [post(CONFIG_MAPS, config_map("x" * 254))],
    "name of 253 characters: accepted": [post(CONFIG_MAPS, config_map("x" * 253))],
    "name with a slash: rejected": [post(CONFIG_MAPS, config_map("a/b"))],
    "invalid data key: rejected": [post(CONFIG_MAPS, config_map(data={"a b": "c"}))],
    "invalid label: rejected": [post(CONFIG_MAPS, config_map(labels={"-bad": "x", "ok": "not ok"}))],
    "label value of 64 characters: rejected": [post(CONFIG_MAPS, config_map(labels={"a": "x" * 64}))],
    "invalid annotation key: rejected": [post(CONFIG_MAPS, config_map(annotations={"a/b/c": "x"}))],
    "invalid finalizer: rejected": [post(CONFIG_MAPS, config_map(finalizers=["bad name"]))],
    "owner reference without a uid: rejected": [
        post(CONFIG_MAPS, config_map(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]))
    ],
    "two controller owner references: rejected": [
        post(
            CONFIG_MAPS,
            config_map(
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True},
                    {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2", "controller": True},
                ]
            ),
        )
    ],
    "create with uid, creationTimestamp and generation: replaced by the server": [
        post(
            CONFIG_MAPS,
            config_map(
                uid="00000000-0000-0000-0000-000000000001",
                creationTimestamp="2001-01-01T00:00:00Z",
                generation=7,
                selfLink="/x",
            ),
        )
    ],
    "create with a resourceVersion: rejected": [post(CONFIG_MAPS, config_map(resourceVersion="5"))],
    "update: new resourceVersion": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(
            f"{CONFIG_MAPS}/a",
            config_map(data={"key": "other"}, resourceVersion="$made.metadata.resourceVersion"),
        ),
        get(f"{CONFIG_MAPS}/a"),
    ],
    "update without changes: resourceVersion kept": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(f"{CONFIG_MAPS}/a", config_map()),
        put(f"{CONFIG_MAPS}/a", "$made"),
    ],
    "update with an old resourceVersion: conflict": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(f"{CONFIG_MAPS}/a", config_map(data={"key": "1"})),
        put(
            f"{CONFIG_MAPS}/a",
            config_map(data={"key": "2"}, resourceVersion="$made.metadata.resourceVersion"),
        ),
    ],
    "update with another uid: conflict": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map(uid="00000000-0000-0000-0000-000000000001")),
    ],
    "update with another name than in the path: rejected": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map("b")),
    ],
    "update without a name: rejected": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}),
    ],
    "update with a resourceVersion that is not a number: rejected": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map(resourceVersion="abc")),
    ],
    "change of an immutable ConfigMap: rejected": [
        post(CONFIG_MAPS, {**config_map(), "immutable": True}),
        put(f"{CONFIG_MAPS}/a", {**config_map(data={"key": "2"}), "immutable": True}),
        put(f"{CONFIG_MAPS}/a", config_map()),
    ],
    "Secret with stringData: stored as data": [
        post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "hello"}, "data": {"b": "aGk="}}),
        get(f"{SECRETS}/s"),
    ],
    "Secret with data that is not base64: rejected": [
        post(SECRETS, {"metadata": {"name": "s"}, "data": {"b": "%%"}})
    ],
    "change of a Secret's type: rejected": [
        post(SECRETS, {"metadata": {"name": "s"}}),
        put(f"{SECRETS}/s", {"metadata": {"name": "s"}, "type": "other"}),
    ],
    "new Namespace: label, phase and finalizer set": [
        post(NAMESPACES, {"metadata": {"name": "$ns-b", "labels": {"x": "y"}}}),
        get(f"{NAMESPACES}/$ns-b"),
    ],
    "Namespace with a dot in its name: rejected": [post(NAMESPACES, {"metadata": {"name": "a.b"}})],
    "new Service: cluster IP and defaults set": [post(SERVICES, service()), get(f"{SERVICES}/a")],
    "Service with clusterIP None: no cluster IP": [post(SERVICES, service(clusterIP="None"))],
    "Service name of 64 characters: rejected": [
        post(SERVICES, service("1a")),
        post(SERVICES, service("x" * 64)),
        post(SERVICES, service("x" * 63)),
    ],
    "Service without ports: rejected": [post(SERVICES, service(ports=[]))],
    "Service with invalid ports: rejected": [
        post(SERVICES, service(ports=[{"port": 0}])),
        post(SERVICES, service(ports=[{"port": 70000}])),
        post(SERVICES, service(ports=[{"port": 1}, {"port": 2}])),
        post(SERVICES, service(ports=[{"name": "a", "port": 1}, {"name": "a", "port": 2}])),
        post(SERVICES, service(ports=[{"port": 1, "protocol": "ICMP"}])),
    ],
    "change of a Service's clusterIP: rejected": [
        post(SERVICES, service(), save="made"),
        put(f"{SERVICES}/a", service(clusterIP="10.96.200.201")),
    ],
    "update of a Service without clusterIP: cluster IP kept": [
        post(SERVICES, service(), save="made"),
        put(f"{SERVICES}/a", service(ports=[{"port": 81}])),
    ],
    "new Deployment: defaults and generation set": [
        post(DEPLOYMENTS, deployment(), save="made"),
        put(f"{DEPLOYMENTS}/a", deployment(replicas=3)),
    ],
    "Deployment whose selector does not match its template: rejected": [
        post(DEPLOYMENTS, deployment(selector={"matchLabels": {"app": "other"}}))
    ],
    "change of a Deployment's selector: rejected": [
        post(DEPLOYMENTS, deployment()),
        put(f"{DEPLOYMENTS}/a", {**deployment("b"), "metadata": {"name": "a"}}),
    ],
    "new Job: defaults, selector and labels set": [post(JOBS, job()), get(f"{JOBS}/a")],
    "Job with restartPolicy Always: rejected": [
        post(
            JOBS,
            job(template={"spec": {"restartPolicy": "Always", "containers": [{"name": "a", "image": "b"}]}}),
        )
    ],
    "Indexed Job without completions: one completion": [post(JOBS, job(completionMode="Indexed"))],
    "change of a Job's completions: rejected": [
        post(JOBS, job(completions=2), save="made"),
        put(
            f"{JOBS}/a",
            {
                "metadata": "$made.metadata",
                "spec": {
                    "template": "$made.spec.template",
                    "selector": "$made.spec.selector",
                    "completions": 3,
                },
            },
        ),
    ],
    "Lease: times stored with microseconds": [
        post(
            LEASES,
            {
                "metadata": {"name": "l"},
                "spec": {
                    "holderIdentity": "me",
                    "leaseDurationSeconds": 10,
                    "renewTime": "2026-01-01T00:00:00.000000Z",
                    "acquireTime": "2026-01-01T00:00:00.123456Z",
                },
            },
        ),
    ],
    "Lease with leaseDurationSeconds 0: rejected": [
        post(LEASES, {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}})
    ],
    "Event: stored as it was sent": [
        post(
            EVENTS,
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "namespace": "$ns", "name": "p"},
                "reason": "R",
                "message": "m",
                "type": "Normal",
                "count": 1,
                "firstTimestamp": "2026-01-01T00:00:00Z",
                "lastTimestamp": "2026-01-01T00:00:00Z",
            },
        )
    ],
    "Event of an object in another namespace: rejected": [
        post(
            EVENTS,
            {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "x", "name": "p"}},
        )
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_objects(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
