import pytest

from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.engine.proxies import environment_proxy

PROXY = "http://proxy:3128"

CHOSEN: dict[str, tuple[str, dict[str, str], str | None]] = {
    "no variable: no proxy": ("https://api", {}, None),
    "HTTPS_PROXY with https: used": ("https://api", {"HTTPS_PROXY": PROXY}, PROXY),
    "HTTPS_PROXY with http: not used": ("http://api", {"HTTPS_PROXY": PROXY}, None),
    "HTTP_PROXY with http: used": ("http://api", {"HTTP_PROXY": PROXY}, PROXY),
    "HTTP_PROXY with https: not used": ("https://api", {"HTTP_PROXY": PROXY}, None),
    "https_proxy in lower case: used": ("https://api", {"https_proxy": PROXY}, PROXY),
    "both cases: upper case is used": (
        "https://api",
        {"https_proxy": "http://other", "HTTPS_PROXY": PROXY},
        PROXY,
    ),
    "empty HTTPS_PROXY: https_proxy is used": (
        "https://api",
        {"https_proxy": PROXY, "HTTPS_PROXY": ""},
        PROXY,
    ),
    "proxy without a scheme: HTTP proxy": ("https://api", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
    "SOCKS5 proxy: used": ("https://api", {"HTTPS_PROXY": "socks5://p"}, "socks5://p"),
    "socks5h: same as socks5": (
        "https://api",
        {"HTTPS_PROXY": "socks5h://me:pw@p:9"},
        "socks5://me:pw@p:9",
    ),
    "localhost: no proxy": ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
    "IPv4 loopback address: no proxy": ("https://127.8.9.1:6443", {"HTTPS_PROXY": PROXY}, None),
    "IPv6 loopback address: no proxy": ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_proxy_from_the_environment(case: str) -> None:
    server, environment, want = CHOSEN[case]
    assert environment_proxy(server, environment) == want


DIRECT: dict[str, tuple[str, str, bool]] = {
    "asterisk: matches everything": ("https://api.example.com", "*", True),
    "asterisk in a list: matches everything": ("https://api.example.com", "x, *", True),
    "domain: matches itself": ("https://example.com", "example.com", True),
    "domain: matches its subdomains": ("https://api.example.com", "example.com", True),
    "domain: does not match a name with the same ending": ("https://myexample.com", "example.com", False),
    "domain with a leading dot: does not match itself": ("https://example.com", ".example.com", False),
    "domain with a leading dot: matches its subdomains": ("https://api.example.com", ".example.com", True),
    "domain with a leading asterisk: matches its subdomains": (
        "https://api.example.com",
        "*.example.com",
        True,
    ),
    "domain with a leading asterisk: does not match itself": ("https://example.com", "*.example.com", False),
    "asterisk within a name: matches nothing": ("https://api.example.com", "api*", False),
    "domain in other case: matches": ("https://API.Example.com", "example.COM", True),
    "spaces and empty entries: ignored": ("https://b", " a ,, b ", True),
    "domain with the same port: matches": ("https://api.example.com:6443", "example.com:6443", True),
    "domain with another port: does not match": ("https://api.example.com", "example.com:6443", False),
    "domain with the default port: matches a URL without port": (
        "https://api.example.com",
        "example.com:443",
        True,
    ),
    "same IPv4 address: matches": ("https://10.1.2.3", "10.1.2.3", True),
    "other IPv4 address: does not match": ("https://10.1.2.3", "10.1.2.4", False),
    "IPv4 address with the same port: matches": ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
    "IPv4 address with another port: does not match": ("https://10.1.2.3:6443", "10.1.2.3:443", False),
    "same IPv6 address: matches": ("https://[fd00::1]:6443", "fd00::1", True),
    "IPv6 address with the same port: matches": ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
    "IPv6 address with another port: does not match": ("https://[fd00::1]:6443", "[fd00::1]:443", False),
    "IPv4 network with the address: matches": ("https://10.1.2.3", "10.0.0.0/8", True),
    "IPv4 network without the address: does not match": ("https://192.168.0.1", "10.0.0.0/8", False),
    "IPv6 network with the address: matches": ("https://[fd00::1]", "fd00::/8", True),
    "network and a host name: does not match": ("https://api", "0.0.0.0/0", False),
    "domain and an address with the same ending: does not match": ("https://10.1.2.3", "2.3", False),
    "port without a host: matches nothing": ("https://api", ":443", False),
    "invalid entries: match nothing": ("https://api", "10.0.0.0/99,[x,]:1", False),
}


@pytest.mark.parametrize("case", DIRECT)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy(case: str, name: str) -> None:
    server, exceptions, want = DIRECT[case]
    chosen = environment_proxy(server, {"HTTPS_PROXY": PROXY, name: exceptions})
    assert (chosen is None) is want


def test_a_proxy_with_an_unsupported_scheme_is_rejected_with_its_variable() -> None:
    with pytest.raises(KubeconfigError, match=r"HTTPS_PROXY: .*'ftp://p'.*socks5") as refused:
        environment_proxy("https://api", {"HTTPS_PROXY": "ftp://me:secret@p"})
    assert "secret" not in str(refused.value)
