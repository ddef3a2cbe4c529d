import msgspec
import pytest
from dnslib import RCODE, DNSRecord

from argosy.kinds.meta import Json
from argosy.local.node.dns import Responder, Zone
from argosy.local.node.pod_types import Pod
from argosy.local.node.service_backends import ServiceDirectory
from argosy.local.service_types import EndpointSlice, Service

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
    directory = ServiceDirectory(
        lambda namespace, name: services.get(name) if namespace == "ml" else None,
        lambda _, name: slices.get(name, []),
        lambda _: [msgspec.convert(LATE_POD, Pod)],
    )
    return Zone(directory, "cluster.local", {"10.96.0.7": "web.ml.svc"}.get)


CASES: dict[str, tuple[str, str, int, list[str]]] = {
    "service: cluster IP": ("web.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.96.0.7"]),
    "name in other case: resolves": ("WEB.ml.SVC.cluster.local", "A", RCODE.NOERROR, ["10.96.0.7"]),
    "headless service: addresses of ready pods": (
        "job.ml.svc.cluster.local",
        "A",
        RCODE.NOERROR,
        ["10.88.0.4"],
    ),
    "host name of a pod: its address": ("w0.job.ml.svc.cluster.local", "A", RCODE.NOERROR, ["10.88.0.4"]),
    "host name of a pod that is not ready: NXDOMAIN": (
        "w1.job.ml.svc.cluster.local",
        "A",
        RCODE.NXDOMAIN,
        [],
    ),
    "host name of an unready pod with publishNotReadyAddresses: its address": (
        "w2.early.ml.svc.cluster.local",
        "A",
        RCODE.NOERROR,
        ["10.88.0.6"],
    ),
    "headless service without pods: NXDOMAIN": ("empty.ml.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "unknown service: NXDOMAIN": ("nope.ml.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "unknown namespace: NXDOMAIN": ("web.other.svc.cluster.local", "A", RCODE.NXDOMAIN, []),
    "AAAA of an existing name: no records": ("web.ml.svc.cluster.local", "AAAA", RCODE.NOERROR, []),
    "name with a pod's address: its address": (
        "10-88-0-4.ml.pod.cluster.local",
        "A",
        RCODE.NOERROR,
        ["10.88.0.4"],
    ),
    "SRV of a service's named port: the service": (
        "_http._tcp.web.ml.svc.cluster.local",
        "SRV",
        RCODE.NOERROR,
        ["0 100 80 web.ml.svc.cluster.local."],
    ),
    "SRV of a headless service's named port: its pods": (
        "_rdv._tcp.job.ml.svc.cluster.local",
        "SRV",
        RCODE.NOERROR,
        ["0 100 29500 w0.job.ml.svc.cluster.local."],
    ),
    "ExternalName service: CNAME": ("far.ml.svc.cluster.local", "A", RCODE.NOERROR, ["db.example.org."]),
    "reverse lookup of a cluster address: its name": (
        "7.0.96.10.in-addr.arpa",
        "PTR",
        RCODE.NOERROR,
        ["web.ml.svc.cluster.local."],
    ),
}


async def ask(name: str, kind: str, limit: int = 65535) -> DNSRecord:
    """Through a resolver's eyes: the bytes are made and read by a library that is not ours."""
    query = DNSRecord.question(name, kind)
    reply = await Responder(zone(), None).respond(query.pack(), limit)
    assert reply is not None
    answer = DNSRecord.parse(reply)
    assert (answer.header.id, answer.header.qr, answer.header.rd) == (query.header.id, 1, 1)
    assert answer.q == query.q
    return answer


@pytest.mark.parametrize("case", CASES)
async def test_answers(case: str) -> None:
    name, kind, want_code, want = CASES[case]
    answer = await ask(name, kind)
    assert answer.header.aa == 1
    assert (answer.header.rcode, [str(record.rdata) for record in answer.rr]) == (want_code, want)
    assert all(str(record.rname) == f"{name}." for record in answer.rr)


@pytest.mark.parametrize("name", ["example.org", "1.2.0.192.in-addr.arpa"])
async def test_other_names_fail_at_once_without_an_upstream_resolver(
    name: str,
) -> None:
    answer = await ask(name, "A")
    assert (answer.header.rcode, answer.header.aa, answer.rr) == (RCODE.SERVFAIL, 0, [])


async def test_an_answer_that_does_not_fit_is_truncated() -> None:
    whole = await ask("_rdv._tcp.job.ml.svc.cluster.local", "SRV")
    assert (len(whole.rr), whole.header.tc) == (1, 0)
    cut = await ask("_rdv._tcp.job.ml.svc.cluster.local", "SRV", limit=60)
    assert (len(cut.rr), cut.header.tc) == (0, 1)


RUBBISH = {
    "too short for a header: not answered": b"\x00\x01",
    "response instead of a query: not answered": bytes.fromhex("abcd81800001000000000000")
    + b"\x01a\x00\x00\x01\x00\x01",
    "no question: not answered": bytes.fromhex("abcd01000000000000000000"),
    "incomplete name: not answered": bytes.fromhex("abcd01000001000000000000") + b"\x07exam",
    "name with a compression loop: not answered": bytes.fromhex("abcd01000001000000000000")
    + b"\xc0\x0c\x00\x01\x00\x01",
    "question without a type: not answered": bytes.fromhex("abcd01000001000000000000") + b"\x01a\x00\x00",
}


@pytest.mark.parametrize("message", RUBBISH.values(), ids=RUBBISH.keys())
async def test_invalid_messages_are_not_answered(message: bytes) -> None:
    assert await Responder(zone(), None).respond(message) is None
