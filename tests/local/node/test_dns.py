import msgspec
import pytest
from dnslib import QTYPE, RCODE, DNSQuestion

from argosy.local.node.dns import Responder, Zone
from argosy.local.node.kinds import EndpointSlice, Json, Pod, Service
from argosy.local.node.services import Directory

SERVICES = {
    "web": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80, "targetPort": 8000}]},
    "job": {"clusterIP": "None", "selector": {"job": "j"}, "ports": [{"name": "rdv", "port": 29500}]},
    "early": {"clusterIP": "None", "selector": {"job": "j"}, "publishNotReadyAddresses": True},
    "far": {"type": "ExternalName", "externalName": "db.example.org"},
    "empty": {"clusterIP": "None", "selector": {"job": "none"}},
}
SLICE: Json = {
    "metadata": {"name": "job-1", "namespace": "ml"},
    "endpoints": [
        {"addresses": ["10.88.0.4"], "hostname": "w0", "conditions": {"ready": True}},
        {"addresses": ["10.88.0.5"], "hostname": "w1", "conditions": {"ready": False}},
    ],
    "ports": [{"name": "rdv", "port": 29500}],
}
LATE_POD: Json = {
    "metadata": {"name": "p", "namespace": "ml", "labels": {"job": "j"}},
    "spec": {"hostname": "w2", "subdomain": "early", "containers": []},
    "status": {
        "phase": "Running",
        "podIP": "10.88.0.6",
        "conditions": [{"type": "Ready", "status": "False"}],
    },
}


def zone() -> Zone:
    services = {
        name: msgspec.convert({"metadata": {"name": name, "namespace": "ml"}, "spec": spec}, Service)
        for name, spec in SERVICES.items()
    }
    slices = {"job": [msgspec.convert(SLICE, EndpointSlice)]}
    directory = Directory(
        lambda namespace, name: services.get(name) if namespace == "ml" else None,
        lambda _, name: slices.get(name, []),
        lambda _: [msgspec.convert(LATE_POD, Pod)],
    )
    return Zone(directory, "cluster.local", {"10.96.0.7": "web.ml.svc"}.get)


CASES: dict[str, tuple[str, str, int, list[str]]] = {
    "a service is its cluster address": ("web.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.96.0.7"]),
    "names are not case sensitive": ("WEB.ml.SVC.cluster.local", "A", RCODE.NOERROR, ["10.96.0.7"]),
    "a headless service is its ready pods": ("job.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.88.0.4"]),
    "a pod by its hostname": ("w0.job.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.88.0.4"]),
    "a pod that is not ready has no name": ("w1.job.ml.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "unless its service publishes it": ("w2.early.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.88.0.6"]),
    "no pod, no name": ("empty.ml.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "an unknown service": ("nope.ml.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "an unknown namespace": ("web.other.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "there is no IPv6, but the name exists": ("web.ml.svc.cluster.local", "AAAA", RCODE.NOERROR, []),
    "a pod by its address": ("10-88-0-4.ml.pod.cluster.local", "A", RCODE.NOERROR, ["10.88.0.4"]),
    "a named port of a service": (
        "_http._tcp.web.ml.svc.cluster.local",
        "SRV",
        RCODE.NOERROR,
        ["0 100 80 web.ml.svc.cluster.local."],
    ),
    "a named port of headless pods": (
        "_rdv._tcp.job.ml.svc.cluster.local",
        "SRV",
        RCODE.NOERROR,
        ["0 100 29500 w0.job.ml.svc.cluster.local."],
    ),
    "a name for something outside": ("far.ml.svc.cluster.local", "A", RCODE.NOERROR, ["db.example.org."]),
    "an address of ours, backwards": (
        "7.0.96.10.in-addr.arpa",
        "PTR",
        RCODE.NOERROR,
        ["web.ml.svc.cluster.local."],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_answers(sentence: str) -> None:
    name, kind, want_code, want = CASES[sentence]
    answer = zone().answer(DNSQuestion(name, getattr(QTYPE, kind)))
    assert answer is not None
    code, records = answer
    assert (code, [str(record.rdata) for record in records]) == (want_code, want)


def test_other_names_are_not_ours_to_answer() -> None:
    assert zone().answer(DNSQuestion("example.org", QTYPE.A)) is None
    assert zone().answer(DNSQuestion("1.2.0.192.in-addr.arpa", QTYPE.PTR)) is None


async def test_without_a_resolver_outside_other_names_fail_at_once() -> None:
    query = bytes.fromhex("abcd01000001000000000000") + b"\x07example\x03org\x00\x00\x01\x00\x01"
    reply = await Responder(zone(), None).respond(query)
    assert reply is not None
    assert reply[:2] == b"\xab\xcd"
    assert reply[3] & 15 == RCODE.SERVFAIL


async def test_rubbish_is_not_answered() -> None:
    assert await Responder(zone(), None).respond(b"\x00\x01") is None
