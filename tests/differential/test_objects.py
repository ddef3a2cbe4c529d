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
    "the finalizers of a namespace are checked when they are finalized": [
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
    "a created object comes back with its metadata, and reads the same": [
        post(CONFIG_MAPS, config_map(labels={"a": "1"}, annotations={"b": "2"})),
        get(f"{CONFIG_MAPS}/a"),
    ],
    "kind and apiVersion may be left out": [
        post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    ],
    "a kind that is not the path's is refused": [
        post(CONFIG_MAPS, {**config_map(data={}), "kind": "Secret"})
    ],
    "an apiVersion that is not the path's is refused": [
        post(CONFIG_MAPS, {**config_map(), "apiVersion": "v2"})
    ],
    "a namespace that is not the path's is refused": [post(CONFIG_MAPS, config_map(namespace="other"))],
    "an object in a namespace that is not there is refused": [
        post("/api/v1/namespaces/no-such/configmaps", config_map())
    ],
    "a second object of the same name is refused": [
        post(CONFIG_MAPS, config_map()),
        post(CONFIG_MAPS, config_map()),
    ],
    "an object that is not there is not found": [
        get(f"{CONFIG_MAPS}/none"),
        delete(f"{CONFIG_MAPS}/none"),
        put(f"{CONFIG_MAPS}/none", config_map("none", resourceVersion="1")),
    ],
    "a put does not make an object that is not there": [put(f"{CONFIG_MAPS}/new", config_map("new"))],
    "a name is made from generateName": [post(CONFIG_MAPS, {"metadata": {"generateName": "gen-"}})],
    "a long generateName is cut": [post(CONFIG_MAPS, {"metadata": {"generateName": "x" * 250}})],
    "without any name an object is refused": [post(CONFIG_MAPS, {"metadata": {}})],
    "a name with capitals is refused": [post(CONFIG_MAPS, config_map("Big"))],
    "a name of 254 characters is refused": [post(CONFIG_MAPS, config_map("x" * 254))],
    "a name of 253 characters is taken": [post(CONFIG_MAPS, config_map("x" * 253))],
    "a name with a slash is refused": [post(CONFIG_MAPS, config_map("a/b"))],
    "a bad data key is refused": [post(CONFIG_MAPS, config_map(data={"a b": "c"}))],
    "a bad label is refused": [post(CONFIG_MAPS, config_map(labels={"-bad": "x", "ok": "not ok"}))],
    "a label value of 64 characters is refused": [post(CONFIG_MAPS, config_map(labels={"a": "x" * 64}))],
    "a bad annotation key is refused": [post(CONFIG_MAPS, config_map(annotations={"a/b/c": "x"}))],
    "a bad finalizer is refused": [post(CONFIG_MAPS, config_map(finalizers=["bad name"]))],
    "an owner without a uid is refused": [
        post(CONFIG_MAPS, config_map(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]))
    ],
    "two controlling owners are refused": [
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
    "what the server sets is not taken from the client": [
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
    "a version in a new object is refused": [post(CONFIG_MAPS, config_map(resourceVersion="5"))],
    "a put changes the version": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(
            f"{CONFIG_MAPS}/a",
            config_map(data={"key": "other"}, resourceVersion="$made.metadata.resourceVersion"),
        ),
        get(f"{CONFIG_MAPS}/a"),
    ],
    "a put that changes nothing keeps the version": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(f"{CONFIG_MAPS}/a", config_map()),
        put(f"{CONFIG_MAPS}/a", "$made"),
    ],
    "a put on an old version is a conflict": [
        post(CONFIG_MAPS, config_map(), save="made"),
        put(f"{CONFIG_MAPS}/a", config_map(data={"key": "1"})),
        put(
            f"{CONFIG_MAPS}/a",
            config_map(data={"key": "2"}, resourceVersion="$made.metadata.resourceVersion"),
        ),
    ],
    "a put with another uid is a conflict": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map(uid="00000000-0000-0000-0000-000000000001")),
    ],
    "a put with another name is refused": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map("b")),
    ],
    "a put without a name is refused": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}),
    ],
    "a put with a version that is no number is refused": [
        post(CONFIG_MAPS, config_map()),
        put(f"{CONFIG_MAPS}/a", config_map(resourceVersion="abc")),
    ],
    "an immutable config map cannot be changed": [
        post(CONFIG_MAPS, {**config_map(), "immutable": True}),
        put(f"{CONFIG_MAPS}/a", {**config_map(data={"key": "2"}), "immutable": True}),
        put(f"{CONFIG_MAPS}/a", config_map()),
    ],
    "a secret with stringData stores data": [
        post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "hello"}, "data": {"b": "aGk="}}),
        get(f"{SECRETS}/s"),
    ],
    "a secret's data must be base64": [post(SECRETS, {"metadata": {"name": "s"}, "data": {"b": "%%"}})],
    "a secret's type cannot be changed": [
        post(SECRETS, {"metadata": {"name": "s"}}),
        put(f"{SECRETS}/s", {"metadata": {"name": "s"}, "type": "other"}),
    ],
    "a namespace gets its label, phase and finalizer": [
        post(NAMESPACES, {"metadata": {"name": "$ns-b", "labels": {"x": "y"}}}),
        get(f"{NAMESPACES}/$ns-b"),
    ],
    "a namespace's name is a DNS label": [post(NAMESPACES, {"metadata": {"name": "a.b"}})],
    "a service gets an address and defaults": [post(SERVICES, service()), get(f"{SERVICES}/a")],
    "a headless service has no address": [post(SERVICES, service(clusterIP="None"))],
    "a service's name has at most 63 characters": [
        post(SERVICES, service("1a")),
        post(SERVICES, service("x" * 64)),
        post(SERVICES, service("x" * 63)),
    ],
    "a service without ports is refused": [post(SERVICES, service(ports=[]))],
    "a service's port must be one": [
        post(SERVICES, service(ports=[{"port": 0}])),
        post(SERVICES, service(ports=[{"port": 70000}])),
        post(SERVICES, service(ports=[{"port": 1}, {"port": 2}])),
        post(SERVICES, service(ports=[{"name": "a", "port": 1}, {"name": "a", "port": 2}])),
        post(SERVICES, service(ports=[{"port": 1, "protocol": "ICMP"}])),
    ],
    "a service's address cannot be changed": [
        post(SERVICES, service(), save="made"),
        put(f"{SERVICES}/a", service(clusterIP="10.96.200.201")),
    ],
    "a service with a put keeps its address": [
        post(SERVICES, service(), save="made"),
        put(f"{SERVICES}/a", service(ports=[{"port": 81}])),
    ],
    "a deployment is given its defaults and a generation": [
        post(DEPLOYMENTS, deployment(), save="made"),
        put(f"{DEPLOYMENTS}/a", deployment(replicas=3)),
    ],
    "a deployment's selector must match its template": [
        post(DEPLOYMENTS, deployment(selector={"matchLabels": {"app": "other"}}))
    ],
    "a deployment's selector cannot be changed": [
        post(DEPLOYMENTS, deployment()),
        put(f"{DEPLOYMENTS}/a", {**deployment("b"), "metadata": {"name": "a"}}),
    ],
    "a job is given its defaults, a selector and labels": [post(JOBS, job()), get(f"{JOBS}/a")],
    "a job must say that it does not restart always": [
        post(
            JOBS,
            job(template={"spec": {"restartPolicy": "Always", "containers": [{"name": "a", "image": "b"}]}}),
        )
    ],
    "an indexed job has one completion unless it says more": [post(JOBS, job(completionMode="Indexed"))],
    "a job's completions cannot be changed": [
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
    "a lease keeps its times": [
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
    "a lease's duration must be positive": [
        post(LEASES, {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}})
    ],
    "an event is kept": [
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
    "an event is in the namespace of its object": [
        post(
            EVENTS,
            {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "x", "name": "p"}},
        )
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_objects(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
