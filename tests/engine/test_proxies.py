import pytest

from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.engine.proxies import environment_proxy

PROXY = "http://proxy:3128"

CHOSEN: dict[str, tuple[str, dict[str, str], str | None]] = {
    "no variable: directly": ("https://api", {}, None),
    "HTTPS_PROXY is for https": ("https://api", {"HTTPS_PROXY": PROXY}, PROXY),
    "HTTPS_PROXY is not for http": ("http://api", {"HTTPS_PROXY": PROXY}, None),
    "HTTP_PROXY is for http": ("http://api", {"HTTP_PROXY": PROXY}, PROXY),
    "HTTP_PROXY is not for https": ("https://api", {"HTTP_PROXY": PROXY}, None),
    "lower case works too": ("https://api", {"https_proxy": PROXY}, PROXY),
    "upper case wins": ("https://api", {"https_proxy": "http://other", "HTTPS_PROXY": PROXY}, PROXY),
    "an empty value counts as none": ("https://api", {"https_proxy": PROXY, "HTTPS_PROXY": ""}, PROXY),
    "a proxy without scheme is an HTTP proxy": ("https://api", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
    "a SOCKS proxy": ("https://api", {"HTTPS_PROXY": "socks5://p"}, "socks5://p"),
    "names are resolved by a SOCKS proxy anyway": (
        "https://api",
        {"HTTPS_PROXY": "socks5h://me:pw@p:9"},
        "socks5://me:pw@p:9",
    ),
    "localhost is never proxied": ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
    "a loopback address is never proxied": ("https://127.8.9.1:6443", {"HTTPS_PROXY": PROXY}, None),
    "the loopback address of IPv6 is never proxied": ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
}


@pytest.mark.parametrize("sentence", CHOSEN)
def test_the_proxy_of_the_environment(sentence: str) -> None:
    server, environment, want = CHOSEN[sentence]
    assert environment_proxy(server, environment) == want


DIRECT: dict[str, tuple[str, str, bool]] = {
    "an asterisk is everything": ("https://api.example.com", "*", True),
    "an asterisk among others is everything": ("https://api.example.com", "x, *", True),
    "a domain is itself": ("https://example.com", "example.com", True),
    "a domain is all below it": ("https://api.example.com", "example.com", True),
    "a domain is not one that ends alike": ("https://myexample.com", "example.com", False),
    "a domain after a dot is not itself": ("https://example.com", ".example.com", False),
    "a domain after a dot is what is below it": ("https://api.example.com", ".example.com", True),
    "a domain after an asterisk is what is below it": ("https://api.example.com", "*.example.com", True),
    "a domain after an asterisk is not itself": ("https://example.com", "*.example.com", False),
    "an asterisk elsewhere means nothing": ("https://api.example.com", "api*", False),
    "domains are compared without case": ("https://API.Example.com", "example.COM", True),
    "blanks and empty entries are passed over": ("https://b", " a ,, b ", True),
    "the port of a domain matches": ("https://api.example.com:6443", "example.com:6443", True),
    "the port of a domain differs": ("https://api.example.com", "example.com:6443", False),
    "the usual port needs not be in the URL": ("https://api.example.com", "example.com:443", True),
    "an address": ("https://10.1.2.3", "10.1.2.3", True),
    "another address": ("https://10.1.2.3", "10.1.2.4", False),
    "an address with its port": ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
    "an address with another port": ("https://10.1.2.3:6443", "10.1.2.3:443", False),
    "an address of IPv6": ("https://[fd00::1]:6443", "fd00::1", True),
    "an address of IPv6 with its port": ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
    "an address of IPv6 with another port": ("https://[fd00::1]:6443", "[fd00::1]:443", False),
    "a network": ("https://10.1.2.3", "10.0.0.0/8", True),
    "a network that it is not in": ("https://192.168.0.1", "10.0.0.0/8", False),
    "a network of IPv6": ("https://[fd00::1]", "fd00::/8", True),
    "a name is in no network": ("https://api", "0.0.0.0/0", False),
    "an address is in no domain": ("https://10.1.2.3", "2.3", False),
    "a port without a host means nothing": ("https://api", ":443", False),
    "nonsense means nothing": ("https://api", "10.0.0.0/99,[x,]:1", False),
}


@pytest.mark.parametrize("sentence", DIRECT)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy(sentence: str, name: str) -> None:
    server, exceptions, want = DIRECT[sentence]
    chosen = environment_proxy(server, {"HTTPS_PROXY": PROXY, name: exceptions})
    assert (chosen is None) is want


def test_a_proxy_of_an_unknown_kind_is_refused_by_the_name_of_the_variable() -> None:
    with pytest.raises(KubeconfigError, match=r"HTTPS_PROXY: .*'ftp://p'.*socks5") as refused:
        environment_proxy("https://api", {"HTTPS_PROXY": "ftp://me:secret@p"})
    assert "secret" not in str(refused.value)
