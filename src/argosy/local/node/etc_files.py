"""Renders a pod's /etc/hosts and /etc/resolv.conf, as the kubelet writes them."""

from collections.abc import Sequence

from argosy.local.node.pod_types import Pod
from argosy.local.node.runspec_builder import hostname


def pod_fqdn(pod: Pod, cluster_domain: str) -> str:
    """Return the pod's fully qualified name; empty if it has no subdomain."""
    if not pod.spec.subdomain:
        return ""
    return f"{hostname(pod)}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"


def render_hosts(pod: Pod, address: str, cluster_domain: str) -> str:
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ]
    full = pod_fqdn(pod, cluster_domain)
    lines.append(f"{address}\t{full + chr(9) if full else ''}{hostname(pod)}")
    lines += [f"{alias.ip}\t{chr(9).join(alias.hostnames)}" for alias in pod.spec.host_aliases]
    return "\n".join(lines) + "\n"


def render_resolv_conf(pod: Pod, nameserver: str, cluster_domain: str, host_file: str) -> str:
    """Render resolv.conf by the pod's DNS policy and dnsConfig, whose options take precedence."""
    policy, own = pod.spec.dns_policy, pod.spec.dns_config
    if policy == "Default" or (policy == "ClusterFirst" and pod.spec.host_network):
        servers, searches, options = parse_resolv_conf(host_file)
    elif policy == "None":
        servers, searches, options = [], [], []
    else:
        _, host_searches, _ = parse_resolv_conf(host_file)
        base = [f"{pod.metadata.namespace}.svc.{cluster_domain}", f"svc.{cluster_domain}", cluster_domain]
        servers, searches, options = [nameserver], [*base, *host_searches], ["ndots:5"]
    servers = _unique([*servers, *own.nameservers])
    searches = _unique([*searches, *own.searches])
    pod_options = [f"{option.name}:{option.value}" if option.value else option.name for option in own.options]
    names = {option.partition(":")[0] for option in pod_options}
    options = [option for option in options if option.partition(":")[0] not in names] + pod_options
    lines = [f"nameserver {server}" for server in servers[:3]]
    if searches:
        lines.insert(0, f"search {' '.join(searches)}")
    if options:
        lines.append(f"options {' '.join(options)}")
    return "\n".join(lines) + "\n"


def parse_resolv_conf(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return servers, search domains and options of a resolv.conf."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        word, *values = line.split("#")[0].split() or [""]
        if word == "nameserver":
            servers += values[:1]
        elif word in ("search", "domain"):
            searches = values
        elif word == "options":
            options += values
    return servers, [domain for domain in searches if domain != "."], options


def _unique(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))
