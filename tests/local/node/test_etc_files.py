import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.local.node.etc_files import render_hosts, render_resolv_conf
from argosy.local.node.pod_types import Pod
from argosy.local.node.runspec_builder import hostname

HOST = "# made by hand\nnameserver 192.0.2.53\nsearch lab.example\noptions timeout:2\n"


def pod(**spec: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "trainer-0", "namespace": "ml"}, "spec": spec}, Pod)


def test_the_hosts_file_has_the_pods_own_names_and_aliases() -> None:
    text = render_hosts(
        pod(hostname="w0", subdomain="job", hostAliases=[{"ip": "192.0.2.1", "hostnames": ["a", "b"]}]),
        "10.88.0.4",
        "cluster.local",
    )
    assert "127.0.0.1\tlocalhost\n" in text
    assert "10.88.0.4\tw0.job.ml.svc.cluster.local\tw0\n" in text
    assert text.endswith("192.0.2.1\ta\tb\n")


RESOLVERS: dict[str, tuple[Json, str]] = {
    "ClusterFirst: cluster domains, then the host's": (
        {},
        "search ml.svc.cluster.local svc.cluster.local cluster.local lab.example\n"
        "nameserver 10.88.0.1\noptions ndots:5\n",
    ),
    "Default: the host's resolv.conf": (
        {"dnsPolicy": "Default"},
        "search lab.example\nnameserver 192.0.2.53\noptions timeout:2\n",
    ),
    "ClusterFirst with hostNetwork: the host's resolv.conf": (
        {"hostNetwork": True},
        "search lab.example\nnameserver 192.0.2.53\noptions timeout:2\n",
    ),
    "ClusterFirstWithHostNet: cluster domains": (
        {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
        "search ml.svc.cluster.local svc.cluster.local cluster.local lab.example\n"
        "nameserver 10.88.0.1\noptions ndots:5\n",
    ),
    "None: only the pod's dnsConfig": (
        {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.9"], "searches": ["x.example"]}},
        "search x.example\nnameserver 192.0.2.9\n",
    ),
    "options in dnsConfig: take precedence": (
        {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}]}},
        "search ml.svc.cluster.local svc.cluster.local cluster.local lab.example\n"
        "nameserver 10.88.0.1\noptions ndots:1 rotate\n",
    ),
}


@pytest.mark.parametrize("case", RESOLVERS)
def test_resolv_conf(case: str) -> None:
    spec, want = RESOLVERS[case]
    assert render_resolv_conf(pod(**spec), "10.88.0.1", "cluster.local", HOST) == want


def test_a_long_host_name_is_truncated() -> None:
    long = msgspec.convert({"metadata": {"name": "a" * 62 + "-b"}}, Pod)
    assert hostname(long) == "a" * 62
