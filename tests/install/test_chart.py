"""The chart: its values, each of which changes something, and what it gives for them."""

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
import pytest
import yaml

from argosy import __version__
from argosy.install.chart import Chart, ValuesError, chart_folder, is_kept, merge_values
from argosy.install.installation import KINDS
from argosy.kinds.meta import Json
from argosy.operator.settings import IMAGE
from argosy.workload.gang_schedulers.registry import CHOICES

CHART = Chart(chart_folder())
NAMESPACE = "argosy-system"
RUNS = "trainingruns.argosy.dev"
KINDS_OF_JOBS = ("aresjob", "trainingrun")
DEFAULTS = cast("Json", yaml.safe_load((CHART.path / "values.yaml").read_text()))
SCHEMA = msgspec.json.decode((CHART.path / "values.schema.json").read_bytes(), type=Json)
MONITORED: Json = {
    "serviceMonitor": {"enabled": True},
    "observer": {"enabled": True},
    "webhooks": {"enabled": True},
}

OTHER: dict[str, object] = {
    "image.repository": "example.org/argosy",
    "image.tag": "9.9",
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "name": "other-operator",
    "apis.argosy": False,
    "apis.ares": False,
    "observer.enabled": False,
    "observer.name": "other-observer",
    "observer.replicas": 3,
    "observer.auth": "none",
    "observer.nodePort": 30037,
    "config": {"operator": {"restConfig": {"qps": 5}}},
    "replicas": 3,
    "watchNamespace": "team",
    "crds.install": False,
    "gang.backend": "auto",
    "webhooks.enabled": False,
    "features.remoteExec": False,
    "features.sshKeys": True,
    "concurrency": 8,
    "connections.max": 100,
    "connections.maxPerAddress": 10,
    "clusterDomain": "example.local",
    "log.level": "debug",
    "log.format": "text",
    "serviceAccount.annotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "resources.requests": {"cpu": "1"},
    "resources.limits": {"cpu": "1"},
    "podDisruptionBudget.enabled": False,
    "networkPolicy.enabled": False,
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "networkPolicy.apiServerPorts": [8443],
    "serviceMonitor.enabled": False,
    "serviceMonitor.interval": "1m",
    "serviceMonitor.labels": {"a": "b"},
}
"""Another value for each, where a part of the chart is on in which it matters."""

WRONG: dict[str, tuple[Json, str]] = {
    "a value that is not there": ({"replica": 1}, "replica: there is no such value"),
    "a value that is not there, further down": ({"log": {"colour": True}}, "log.colour"),
    "another type": ({"replicas": "2"}, "replicas: '2' is not of type integer"),
    "a boolean is no number": ({"concurrency": True}, "concurrency"),
    "out of bounds": ({"concurrency": 0}, "concurrency: 0 is not within 1 and 1024"),
    "a word that is none of those": ({"log": {"level": "loud"}}, "log.level: 'loud' is not one of debug"),
    "a name that is none": ({"watchNamespace": "Not A Name"}, "watchNamespace"),
    "an item of a list": ({"imagePullSecrets": [{}]}, r"imagePullSecrets\[0\].name: missing"),
    "too few": ({"networkPolicy": {"apiServerPorts": []}}, "apiServerPorts: too few"),
    "empty": ({"image": {"repository": ""}}, "image.repository: must not be empty"),
    "nothing where something is needed": ({"replicas": None}, "replicas: missing"),
    "a value of a free map": ({"podLabels": {"a": 1}}, "podLabels.a"),
}


def objects(*given: Json) -> list[Json]:
    return CHART.objects(NAMESPACE, CHART.values(*given))


def only(kind: str, *given: Json) -> Json:
    (found,) = (one for one in objects(*given) if one["kind"] == kind)
    return found


def _name(one: Json) -> str:
    return f"{one['kind']} {cast('Json', one['metadata'])['name']}"


def at(path: str, value: object) -> Json:
    for name in reversed(path.split(".")):
        value = {name: value}
    return cast("Json", value)


def leaves(values: Mapping[str, object], schema: Mapping[str, object], path: str = "") -> Iterator[str]:
    """The paths of all values that are no mere groups of others."""
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    for name, value in values.items():
        below = f"{path}.{name}" if path else name
        if isinstance(value, dict) and "properties" in properties.get(name, {}):
            yield from leaves(value, properties[name], below)
        else:
            yield below


def closed(schema: Mapping[str, object], path: str = "") -> Iterator[str]:
    """The groups of values that would let unknown ones in."""
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    if properties and schema.get("additionalProperties") is not False:
        yield path or "values"
    for name, part in properties.items():
        yield from closed(part, f"{path}.{name}")


def test_every_value_is_known_here() -> None:
    assert set(leaves(DEFAULTS, SCHEMA)) == set(OTHER)


@pytest.mark.parametrize("path", OTHER)
def test_every_value_changes_something(path: str) -> None:
    assert objects(MONITORED) != objects(MONITORED, at(path, OTHER[path]))


def test_the_schema_knows_the_defaults_and_lets_nothing_else_in() -> None:
    assert list(closed(SCHEMA)) == []
    assert CHART.values() == DEFAULTS


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_refused_with_their_path(case: str) -> None:
    given, want = WRONG[case]
    with pytest.raises(ValuesError, match=want):
        CHART.values(given)


def test_chart_package_and_image_are_of_one_version() -> None:
    assert (CHART.info.version, CHART.info.app_version) == (__version__, __version__)
    assert container()["image"] == IMAGE
    assert f"--helper-image={IMAGE}" in cast("list[str]", container()["args"])


def test_definitions_come_first_and_stay_when_the_rest_goes() -> None:
    names = [_name(one) for one in objects()]
    definitions = ["CustomResourceDefinition aresjobs.ares.io", f"CustomResourceDefinition {RUNS}"]
    assert sorted(names[:2]) == definitions
    assert sorted(_name(one) for one in objects() if is_kept(one)) == definitions


def test_people_may_be_given_what_they_need_of_jobs() -> None:
    for kind in KINDS_OF_JOBS:
        found = {_name(one): cast("Json", one["metadata"]) for one in objects()}
        for who, role in (("editor", "edit"), ("viewer", "view")):
            labels = cast("Json", found[f"ClusterRole {kind}-{who}-role"]["labels"])
            assert labels[f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"


def test_every_kind_can_be_installed_without_helm() -> None:
    assert {(one["apiVersion"], one["kind"]) for one in objects(MONITORED)} == set(KINDS)


def container(*given: Json) -> Json:
    spec = cast("dict[str, dict[str, Json]]", only("Deployment", *given)["spec"])["template"]["spec"]
    return cast("list[Json]", spec["containers"])[0]


def rights(*given: Json) -> set[tuple[str, str]]:
    """All pairs of resource and verb over the cluster."""
    return {(each, verb) for rule in rules(*given) for each in rule["resources"] for verb in rule["verbs"]}


def rules(*given: Json) -> list[dict[str, list[str]]]:
    (found,) = (one for one in objects(*given) if _name(one) == f"ClusterRole argosy-operator-{NAMESPACE}")
    return cast("list[dict[str, list[str]]]", found["rules"])


LAUNCHERS = {"serviceaccounts", "roles", "rolebindings", "pods/exec"}


def test_rights_are_those_of_the_features_that_are_on() -> None:
    everything = rights()
    assert {resource for resource, _ in everything} >= {*LAUNCHERS, "podgroups", "pods", "nodes"}
    without = {one for one in everything if one[0] not in LAUNCHERS}
    assert rights({"features": {"remoteExec": False}}) == without
    assert rights({"features": {"sshKeys": True}}) - everything == {("secrets", "get"), ("secrets", "create")}


def test_features_that_are_off_are_told_to_the_operator() -> None:
    """By default few rights are given: none over Secrets of jobs."""
    assert "--no-ssh-keys" in cast("list[str]", container()["args"])
    assert "--no-remote-exec" not in cast("list[str]", container()["args"])
    switched: Json = {"features": {"sshKeys": True, "remoteExec": False}}
    assert "--no-ssh-keys" not in cast("list[str]", container(switched)["args"])
    assert "--no-remote-exec" in cast("list[str]", container(switched)["args"])


GROUPS = {
    "volcano": {"scheduling.volcano.sh"},
    "kubernetes": {"scheduling.k8s.io"},
    "scheduler-plugins": {"scheduling.x-k8s.io"},
    "auto": {"scheduling.volcano.sh", "scheduling.k8s.io", "scheduling.x-k8s.io"},
}


@pytest.mark.parametrize("backend", CHOICES)
def test_rights_over_groups_are_those_of_the_gang_back_end(backend: str) -> None:
    given: Json = {"gang": {"backend": backend}}
    groups = {
        group for rule in rules(given) if "podgroups" in rule["resources"] for group in rule["apiGroups"]
    }
    assert groups == GROUPS.get(backend, set())
    settings = cast("dict[str, str]", only("ConfigMap", given)["data"])["config.yaml"]
    assert yaml.safe_load(settings)["operator"]["gang"] == {"backend": backend}
    narrow = rights(given, {"watchNamespace": "team"})
    assert (("pods", "list") in narrow) is (backend in ("builtin", "auto")), "whose pods take room"


def test_each_api_can_be_served_alone() -> None:
    everything = rights()
    for api, plural, more in (("argosy", "trainingruns", set()), ("ares", "aresjobs", {("pods", "patch")})):
        given: Json = {"apis": {api: False}}
        assert rights(given) == {one for one in everything if not one[0].startswith(plural)} - more
        assert f"--api={api}" not in cast("list[str]", container(given)["args"])
        names = {str(cast("Json", one["metadata"])["name"]) for one in objects(given)}
        assert not any(name.startswith(plural) for name in names)


def test_by_default_no_right_is_over_everything_or_over_secrets_of_others() -> None:
    for one in objects():
        for rule in cast("list[dict[str, list[str]]]", one.get("rules", [])):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert one["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["argosy-operator-tls"]


def test_for_one_namespace_rights_over_jobs_end_there() -> None:
    given: Json = {"watchNamespace": "team"}
    assert {resource for resource, _ in rights(given)} == {"nodes", "customresourcedefinitions"}
    roles = [one for one in objects(given) if one["kind"] in ("Role", "RoleBinding")]
    places = sorted(cast("dict[str, str]", one["metadata"])["namespace"] for one in roles)
    assert places == [NAMESPACE, NAMESPACE, "team", "team"]


OBSERVERS = "ServiceAccount ares-observer"


def rules_of(account: str, *given: Json) -> set[tuple[str, str, str, str]]:
    """What an account may do: namespace (empty: in all), resource, verb, and of which name (empty: any)."""
    named = {(_name(one), _place(one)): one for one in objects(*given)}
    found = set()
    for binding in named.values():
        subjects = cast("list[Json]", binding.get("subjects", []))
        if any(f"{one['kind']} {one['name']}" == account for one in subjects):
            bound = cast("Json", binding["roleRef"])
            for rule in _rules(named[f"{bound['kind']} {bound['name']}", _place(binding)]):
                found |= {
                    (_place(binding), resource, verb, name)
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                    for name in rule.get("resourceNames", [""])
                }
    return found


def _rules(role: Json) -> list[dict[str, list[str]]]:
    return cast("list[dict[str, list[str]]]", role["rules"])


def _place(one: Json) -> str:
    return str(cast("Json", one["metadata"]).get("namespace", ""))


def test_observers_read_jobs_and_pods_and_their_own_secret() -> None:
    places = ("", "team")
    for place in places:
        given: Json = {"observer": {"enabled": True}, "watchNamespace": place}
        jobs = {(place, kind, verb, "") for kind in ("aresjobs", "pods") for verb in ("list", "watch")}
        definitions = {("", "customresourcedefinitions", verb, "") for verb in ("list", "watch")}
        secret = {(NAMESPACE, "secrets", "get", "argosy-operator-observer-tls")}
        assert rules_of(OBSERVERS, given) == jobs | definitions | secret, place or "all namespaces"


def pairs(one: Json) -> Iterator[dict[str, str]]:
    """The labels by which an object finds pods."""
    spec = cast("dict[str, dict[str, dict[str, str]]]", one.get("spec", {}))
    for name in ("selector", "podSelector"):
        found = spec.get(name)
        if found:
            yield found.get("matchLabels", cast("dict[str, str]", found))


def test_two_releases_in_one_namespace_do_not_select_each_others_pods() -> None:
    values = CHART.values(MONITORED, {"networkPolicy": {"enabled": True}})
    for one in CHART.objects(NAMESPACE, values, release="second"):
        for selected in pairs(one):
            assert selected["app.kubernetes.io/instance"] == "second", _name(one)
        if one["kind"] == "Deployment":
            pod = cast("dict[str, dict[str, Json]]", one["spec"])["template"]["metadata"]
            assert cast("Json", pod["labels"])["app.kubernetes.io/instance"] == "second"
    settings = next(one for one in objects(MONITORED) if one["kind"] == "ConfigMap")
    assert "app.kubernetes.io/instance: argosy" in cast("dict[str, str]", settings["data"])["config.yaml"]


def policies(*given: Json) -> dict[str, dict[str, Json]]:
    found = (one for one in objects(*given) if one["kind"] == "NetworkPolicy")
    return {_name(one): cast("dict[str, Json]", one["spec"]) for one in found}


def test_observers_have_a_network_policy_that_lets_in_what_they_serve() -> None:
    given: Json = {"observer": {"enabled": True, "auth": "none"}}
    observers, operator = (
        policies(given)[f"NetworkPolicy {name}"] for name in ("ares-observer", "argosy-operator")
    )
    allowed = [port["port"] for rule in cast("list[Json]", observers["ingress"]) for port in _ports(rule)]
    assert allowed == ["https", "http", "metrics"]
    assert observers["egress"] == operator["egress"], "DNS and the API server"
    assert list(policies()) == ["NetworkPolicy argosy-operator"]
    assert policies(given, {"networkPolicy": {"enabled": False}}) == {}


def _ports(rule: Json) -> list[Json]:
    return cast("list[Json]", rule["ports"])


WARNED: dict[str, tuple[Json, str]] = {
    "observers with tokens: nothing to warn of": ({"observer": {"enabled": True}}, ""),
    "no observers: nothing to warn of": ({"observer": {"auth": "none", "nodePort": 30037}}, ""),
    "observers without tokens: everybody in the cluster": (
        {"observer": {"enabled": True, "auth": "none"}},
        "everybody in the cluster the phases and addresses of all AresJobs.",
    ),
    "observers without tokens on a port of the nodes: everybody around it": (
        {"observer": {"enabled": True, "auth": "none", "nodePort": 30037}},
        "by port 30037 everybody who reaches a node from outside of it.",
    ),
}


@pytest.mark.parametrize("case", WARNED.values(), ids=WARNED.keys())
def test_what_is_warned_of(case: tuple[Json, str]) -> None:
    given, want = case
    warning = CHART.warnings(NAMESPACE, CHART.values(given))
    assert warning.endswith(want) if want else not warning


def test_values_are_merged_as_helm_merges_them() -> None:
    under: Json = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merge_values(under, {"a": {"c": [2]}, "e": 3}) == {"a": {"b": 1, "c": [2]}, "d": 2, "e": 3}
    assert merge_values(under, {"a": {"b": None}}, final=True) == {"a": {"c": [1]}, "d": 2}
    assert merge_values({}, {"a": None}) == {"a": None}
