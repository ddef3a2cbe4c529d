"""Tests for the values of the chart: they are validated, and each of them changes the objects."""

import re
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
from argosy.workload.announcements import DEFAULT_TAINTS, parse_taints
from argosy.workload.gang_schedulers.registry import CHOICES

CHART = Chart(chart_folder())
NAMESPACE = "argosy-system"
RUNS = "trainingruns.argosy.dev"
JOB_KINDS = ("aresjob", "trainingrun")
DEFAULTS = cast("Json", yaml.safe_load((CHART.path / "values.yaml").read_text()))
SCHEMA = msgspec.json.decode((CHART.path / "values.schema.json").read_bytes(), type=Json)
MONITORED: Json = {
    "crds": {"install": False},  # they are large
    "apis": {"et": True, "spot": True},
    "serviceMonitor": {"enabled": True},
    "observer": {"enabled": True},
    "webhooks": {"enabled": True},
    "quarantine": {"enabled": True},
    "registryCA": {"name": "company-ca"},
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
    "apis.et": False,
    "apis.spot": False,
    "et.createSshSecret": False,
    "et.initContainerImage": "busybox",
    "et.belowMinTimeoutSeconds": 60,
    "et.workerReplacementLimit": 3,
    "spot.joinTimeoutSeconds": 60,
    "spot.maxJoinAttempts": 2,
    "spot.podsReadyGraceSeconds": 10,
    "spot.instancePollSeconds": 2,
    "spot.backupPickupTimeoutSeconds": 30,
    "spot.backupTimeoutSeconds": 60,
    "spot.rescueTimeoutSeconds": 60,
    "spot.leaseLossTimeoutSeconds": 60,
    "spot.zoneCooldownSeconds": 60,
    "spot.quotaCooldownSeconds": 60,
    "spot.noCapacityBackoffSeconds": 10,
    "spot.noticeMarginSeconds": 1,
    "spot.gceEndpoint": "http://127.0.0.1:8899",
    "spot.catalogPath": "/etc/catalog/vms.csv",
    "spot.bootstrapTokenNamespaces": "team-a,team-b",
    "spot.plainHttpRegistries": "registry:5000",
    "spot.clusterName": "home",
    "registryCA.kind": "Secret",
    "registryCA.name": "other-ca",
    "agent.enabled": False,
    "agent.name": "other-agent",
    "agent.notices": "gce",
    "agent.metadataEndpoint": "http://127.0.0.1:8898",
    "agent.restoreCapability": "image",
    "agent.storageClaim": "checkpoints",
    "agent.storageFolder": "/data/checkpoints",
    "agent.kubeletCertificates": "/etc/kubelet/pki",
    "agent.plainHttpRegistries": ["registry:5000"],
    "agent.defaultSecret": "kube-system/registry",
    "agent.trustedNamespaces": ["platform"],
    "agent.tolerations": [],
    "agent.nodeSelector": {"a": "b"},
    "agent.resources.requests": {"cpu": "1"},
    "agent.resources.limits": {"cpu": "1"},
    "observer.enabled": False,
    "observer.name": "other-observer",
    "observer.replicas": 3,
    "observer.auth": "none",
    "observer.nodePort": 30037,
    "config": {"operator": {"restConfig": {"qps": 5}}},
    "replicas": 3,
    "watchNamespace": "team",
    "crds.install": True,
    "gang.backend": "auto",
    "notices.taints": ["example.org/going=Drained"],
    "notices.cordon": True,
    "quarantine.enabled": False,
    "quarantine.failures": 5,
    "quarantine.replicas": 3,
    "quarantine.namespaces": 1,
    "quarantine.window": "5m",
    "quarantine.duration": "2h",
    "quarantine.maxPercent": 20,
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
"""For each value, another one than in MONITORED or the defaults, which must change an object."""

INVALID: dict[str, tuple[Json, str]] = {
    "unknown value: known values are named": (
        {"replica": 1},
        "replica: unknown value (known values: image, ",
    ),
    "unknown value in a group: known values are named": (
        {"log": {"colour": True}},
        "log.colour: unknown value (known values: level, format)",
    ),
    "text for a number: type is named": (
        {"replicas": "2"},
        'replicas: invalid value "2": must be of type integer',
    ),
    "boolean for a number: type is named": (
        {"concurrency": True},
        "concurrency: invalid value True: must be of type integer",
    ),
    "number out of bounds: bounds are named": (
        {"concurrency": 0},
        "concurrency: invalid value 0: must be between 1 and 1024",
    ),
    "unknown choice: choices are named": (
        {"log": {"level": "loud"}},
        'log.level: invalid value "loud": must be one of debug',
    ),
    "invalid namespace: pattern is named": (
        {"watchNamespace": "Not A Name"},
        'watchNamespace: invalid value "Not A Name": must match ',
    ),
    "list item without a required field: field is named": (
        {"imagePullSecrets": [{}]},
        "imagePullSecrets[0].name: required",
    ),
    "empty list: minimum is named": (
        {"networkPolicy": {"apiServerPorts": []}},
        "networkPolicy.apiServerPorts: must have at least 1 items",
    ),
    "empty text: rejected": ({"image": {"repository": ""}}, "image.repository: must not be empty"),
    "null for a required value: rejected": ({"replicas": None}, "replicas: required"),
    "number in a map of labels: type is named": (
        {"podLabels": {"a": 1}},
        "podLabels.a: invalid value 1: must be of type string",
    ),
}


def objects(*values: Json) -> list[Json]:
    return CHART.objects(NAMESPACE, CHART.values(*values))


def only(kind: str, *values: Json) -> Json:
    """Return the only object of a kind."""
    (obj,) = (obj for obj in objects(*values) if obj["kind"] == kind)
    return obj


def _name(obj: Json) -> str:
    return f"{obj['kind']} {cast('Json', obj['metadata'])['name']}"


def at(path: str, value: object) -> Json:
    for name in reversed(path.split(".")):
        value = {name: value}
    return cast("Json", value)


def leaves(values: Mapping[str, object], schema: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield the paths of all values that are not groups of other values."""
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    for name, value in values.items():
        below = f"{path}.{name}" if path else name
        if isinstance(value, dict) and "properties" in properties.get(name, {}):
            yield from leaves(value, properties[name], below)
        else:
            yield below


def open_groups(schema: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield the groups of values in which the schema allows unknown values."""
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    if properties and schema.get("additionalProperties") is not False:
        yield path or "values"
    for name, part in properties.items():
        yield from open_groups(part, f"{path}.{name}")


def test_every_value_of_the_chart_has_another_value_in_this_module() -> None:
    assert set(leaves(DEFAULTS, SCHEMA)) == set(OTHER)


@pytest.fixture(scope="module")
def monitored() -> list[Json]:
    return objects(MONITORED)


@pytest.mark.parametrize("path", OTHER)
def test_a_changed_value_changes_an_object(path: str, monitored: list[Json]) -> None:
    assert objects(MONITORED, at(path, OTHER[path])) != monitored


def test_the_schema_allows_the_defaults_and_no_unknown_values() -> None:
    assert list(open_groups(SCHEMA)) == []
    assert CHART.values() == DEFAULTS


@pytest.mark.parametrize(("values", "want"), INVALID.values(), ids=INVALID.keys())
def test_invalid_values_are_rejected_with_their_path(values: Json, want: str) -> None:
    with pytest.raises(ValuesError, match=f"^{re.escape(want)}"):
        CHART.values(values)


def test_chart_package_and_image_have_the_same_version() -> None:
    assert (CHART.info.version, CHART.info.app_version) == (__version__, __version__)
    assert container()["image"] == IMAGE
    assert f"--helper-image={IMAGE}" in cast("list[str]", container()["args"])


def test_crds_are_applied_first_and_kept_when_the_chart_is_uninstalled() -> None:
    names = [_name(obj) for obj in objects()]
    crds = ["CustomResourceDefinition aresjobs.ares.io", f"CustomResourceDefinition {RUNS}"]
    assert sorted(names[:2]) == crds
    assert sorted(_name(obj) for obj in objects() if is_kept(obj)) == crds


def test_roles_of_users_are_aggregated_to_edit_and_view() -> None:
    for kind in JOB_KINDS:
        metadata = {_name(obj): cast("Json", obj["metadata"]) for obj in objects()}
        for name, role in (("editor", "edit"), ("viewer", "view")):
            labels = cast("Json", metadata[f"ClusterRole {kind}-{name}-role"]["labels"])
            assert labels[f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"


def test_every_kind_can_be_installed_without_helm() -> None:
    everything = objects(MONITORED, at("crds.install", True))
    assert {(obj["apiVersion"], obj["kind"]) for obj in everything} == set(KINDS)


def container(*values: Json) -> Json:
    spec = cast("dict[str, dict[str, Json]]", only("Deployment", *values)["spec"])["template"]["spec"]
    return cast("list[Json]", spec["containers"])[0]


def rights(*values: Json) -> set[tuple[str, str]]:
    """Return all pairs of resource and verb that hold in the whole cluster."""
    return {
        (resource, verb)
        for rule in rules(*values)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rules(*values: Json) -> list[dict[str, list[str]]]:
    name = f"ClusterRole argosy-operator-{NAMESPACE}"
    (role,) = (obj for obj in objects(*values) if _name(obj) == name)
    return cast("list[dict[str, list[str]]]", role["rules"])


LAUNCHERS = {"serviceaccounts", "roles", "rolebindings", "pods/exec"}


def test_rights_of_a_feature_are_granted_only_if_it_is_on() -> None:
    everything = rights()
    assert {resource for resource, _ in everything} >= {*LAUNCHERS, "podgroups", "pods", "nodes"}
    without = {right for right in everything if right[0] not in LAUNCHERS}
    assert rights({"features": {"remoteExec": False}}) == without
    assert rights({"features": {"sshKeys": True}}) - everything == {("secrets", "get"), ("secrets", "create")}


def test_a_feature_that_is_off_sets_a_flag_of_the_operator() -> None:
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
def test_rights_over_pod_groups_follow_the_gang_backend(backend: str) -> None:
    values: Json = {"gang": {"backend": backend}}
    groups = {
        group for rule in rules(values) if "podgroups" in rule["resources"] for group in rule["apiGroups"]
    }
    assert groups == GROUPS.get(backend, set())
    settings = cast("dict[str, str]", only("ConfigMap", values)["data"])["config.yaml"]
    assert yaml.safe_load(settings)["operator"]["gang"] == {"backend": backend}
    narrow = rights(values, {"watchNamespace": "team"})
    assert (("pods", "list") in narrow) is (backend in ("builtin", "auto")), (
        "free capacity depends on all pods"
    )


def test_each_api_can_be_served_alone() -> None:
    everything = rights()
    assert {("poddisruptionbudgets", "create"), ("checkpointbackups", "create")} <= everything
    for api, plural in (("argosy", "trainingruns"), ("ares", "aresjobs")):
        values: Json = {"apis": {api: False}}
        assert rights(values) == {right for right in everything if not right[0].startswith(plural)}
        assert f"--api={api}" not in cast("list[str]", container(values)["args"])
        names = {str(cast("Json", obj["metadata"])["name"]) for obj in objects(values)}
        assert not any(name.startswith(plural) for name in names)


ARES_HOOKS = ["Mutating maresjob.ares.io Fail", "Validating varesjob.ares.io Fail"]
POD_HOOK = "Mutating mpod.migration.dcnlab.com Ignore"
WEBHOOKS: dict[str, tuple[Json, list[str]]] = {
    "webhooks off: none": ({"apis": {"spot": True}, "webhooks": {"enabled": False}}, []),
    "AresJobs: both of theirs": ({}, ARES_HOOKS),
    "AresJobs and checkpoints: all": ({"apis": {"spot": True}}, [ARES_HOOKS[0], POD_HOOK, ARES_HOOKS[1]]),
    "checkpoints only: the one for pods": ({"apis": {"ares": False, "spot": True}}, [POD_HOOK]),
    "neither: none": ({"apis": {"ares": False}}, []),
}


@pytest.mark.parametrize(("values", "want"), WEBHOOKS.values(), ids=WEBHOOKS.keys())
def test_webhooks_are_those_of_the_served_apis(values: Json, want: list[str]) -> None:
    chosen = CHART.values({"webhooks": {"enabled": True}, **values})
    hooks = [
        f"{str(obj['kind']).removesuffix('WebhookConfiguration')} {hook['name']} {hook['failurePolicy']}"
        for obj in CHART.objects(NAMESPACE, chosen)
        if "webhooks" in obj
        for hook in cast("list[Json]", obj["webhooks"])
    ]
    assert hooks == want


@pytest.mark.parametrize("watched", ["", "team"])
def test_webhook_for_pods_is_asked_about_new_pods_of_jobs_outside_of_system_namespaces(watched: str) -> None:
    values: Json = {
        "apis": {"ares": False, "spot": True},
        "webhooks": {"enabled": True},
        "watchNamespace": watched,
    }
    [configuration] = [obj for obj in CHART.objects(NAMESPACE, CHART.values(values)) if "webhooks" in obj]
    [hook] = cast("list[Json]", configuration["webhooks"])
    name = "kubernetes.io/metadata.name"
    not_system = {"key": name, "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    only = [{"key": name, "operator": "In", "values": [watched]}] if watched else []
    assert hook["namespaceSelector"] == {"matchExpressions": [not_system, *only]}
    assert hook["objectSelector"] == {"matchExpressions": [{"key": "job-name", "operator": "Exists"}]}
    assert hook["rules"] == [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
    assert (hook["timeoutSeconds"], hook["reinvocationPolicy"]) == (5, "IfNeeded")


def test_what_only_trainingjobs_need_is_granted_only_where_they_are_served() -> None:
    alone: Json = {"apis": {"argosy": False, "ares": False}, "features": {"remoteExec": False}}
    added = rights(alone, {"apis": {"et": True}}) - rights(alone)
    kinds = ("trainingjobs", "scaleins", "scaleouts")
    assert {right for right in added if not right[0].startswith(kinds)} == {
        ("pods", "patch"),
        *(("pods/exec", verb) for verb in ("get", "create")),
        *(
            (kind, verb)
            for kind in ("configmaps", "poddisruptionbudgets")
            for verb in ("get", "list", "watch", "create", "patch", "delete")
        ),
    }


def test_settings_of_trainingjobs_are_options_of_the_operator() -> None:
    assert not any("ssh-secret" in argument for argument in cast("list[str]", container()["args"]))
    values: Json = {"apis": {"et": True}, "et": {"createSshSecret": False, "workerReplacementLimit": 3}}
    arguments = cast("list[str]", container(values)["args"])
    first = arguments.index("--api=et") + 1
    assert arguments[first : first + 4] == [
        "--create-ssh-secret=false",
        "--init-container-image=alpine:3.10",
        "--below-min-timeout=600",
        "--worker-replacement-limit=3",
    ]


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_operator_and_agents_mount_the_ca_of_registries_and_start_without_it(kind: str) -> None:
    values: Json = {"apis": {"spot": True}, "registryCA": {"kind": kind, "name": "company-ca"}}
    source = {"optional": True, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    want = {
        "ConfigMap": {"name": "registry-ca", "configMap": {"name": "company-ca", **source}},
        "Secret": {"name": "registry-ca", "secret": {"secretName": "company-ca", **source}},
    }
    for workload in ("Deployment", "DaemonSet"):
        spec = cast("dict[str, dict[str, Json]]", only(workload, values)["spec"])["template"]["spec"]
        (container,) = cast("list[Json]", spec["containers"])
        mounts = cast("list[dict[str, str]]", container["volumeMounts"])
        (folder,) = (mount["mountPath"] for mount in mounts if mount["name"] == "registry-ca")
        assert f"--registry-ca={folder}/ca.crt" in cast("list[str]", container["args"])
        assert want[kind] in cast("list[Json]", spec["volumes"])
        without = yaml.safe_dump(only(workload, {"apis": {"spot": True}}))
        assert "registry-ca" not in without


def test_default_rights_have_no_wildcards_and_include_no_other_secrets() -> None:
    for obj in objects():
        for rule in cast("list[dict[str, list[str]]]", obj.get("rules", [])):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert obj["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["argosy-operator-tls"]


def test_with_watch_namespace_rights_over_jobs_hold_in_that_namespace_only() -> None:
    values: Json = {"watchNamespace": "team"}
    assert {resource for resource, _ in rights(values)} == {"nodes", "customresourcedefinitions"}
    roles = [obj for obj in objects(values) if obj["kind"] in ("Role", "RoleBinding")]
    namespaces = sorted(cast("dict[str, str]", role["metadata"])["namespace"] for role in roles)
    assert namespaces == [NAMESPACE, NAMESPACE, "team", "team"]


OBSERVERS = "ServiceAccount ares-observer"


def rules_of(account: str, *values: Json) -> set[tuple[str, str, str, str]]:
    """Return the rights of an account: namespace (empty: all), resource, verb and name (empty: any)."""
    by_name = {(_name(obj), _namespace(obj)): obj for obj in objects(*values)}
    granted = set()
    for binding in by_name.values():
        subjects = cast("list[Json]", binding.get("subjects", []))
        if any(f"{subject['kind']} {subject['name']}" == account for subject in subjects):
            role = cast("Json", binding["roleRef"])
            for rule in _rules(by_name[f"{role['kind']} {role['name']}", _namespace(binding)]):
                granted |= {
                    (_namespace(binding), resource, verb, name)
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                    for name in rule.get("resourceNames", [""])
                }
    return granted


def _rules(role: Json) -> list[dict[str, list[str]]]:
    return cast("list[dict[str, list[str]]]", role["rules"])


def _namespace(obj: Json) -> str:
    return str(cast("Json", obj["metadata"]).get("namespace", ""))


def test_observers_read_jobs_and_pods_and_their_own_secret() -> None:
    for namespace in ("", "team"):
        values: Json = {"observer": {"enabled": True}, "watchNamespace": namespace}
        jobs = {(namespace, kind, verb, "") for kind in ("aresjobs", "pods") for verb in ("list", "watch")}
        definitions = {("", "customresourcedefinitions", verb, "") for verb in ("list", "watch")}
        secret = {(NAMESPACE, "secrets", "get", "argosy-operator-observer-tls")}
        assert rules_of(OBSERVERS, values) == jobs | definitions | secret, namespace or "all namespaces"


def test_agents_checkpoint_containers_and_have_no_other_subresource_of_nodes() -> None:
    account = "ServiceAccount checkpoint-backup-controller"
    served: Json = {"apis": {"spot": True}}
    for namespace in ("", "team"):
        found = rules_of(account, served, {"watchNamespace": namespace})
        nodes = {right for right in found if right[1].startswith("nodes")}
        assert nodes == {
            ("", "nodes/checkpoint", "create", ""),
            *(("", "nodes", verb, "") for verb in ("get", "list", "watch", "patch")),
        }
        others = found - nodes
        assert {right[0] for right in others} == {namespace}
        assert {right[2] for right in others if right[1] == "secrets"} == {"get"}
    assert rules_of(account) == set()


def selected_labels(obj: Json) -> Iterator[dict[str, str]]:
    """Yield the labels by which an object selects pods."""
    spec = cast("dict[str, dict[str, dict[str, str]]]", obj.get("spec", {}))
    for name in ("selector", "podSelector"):
        if selector := spec.get(name):
            yield selector.get("matchLabels", cast("dict[str, str]", selector))


def test_two_releases_in_one_namespace_do_not_select_each_others_pods() -> None:
    values = CHART.values(MONITORED, {"networkPolicy": {"enabled": True}})
    for obj in CHART.objects(NAMESPACE, values, release="second"):
        for labels in selected_labels(obj):
            assert labels["app.kubernetes.io/instance"] == "second", _name(obj)
        if obj["kind"] == "Deployment":
            pod = cast("dict[str, dict[str, Json]]", obj["spec"])["template"]["metadata"]
            assert cast("Json", pod["labels"])["app.kubernetes.io/instance"] == "second"
    settings = next(obj for obj in objects(MONITORED) if obj["kind"] == "ConfigMap")
    assert "app.kubernetes.io/instance: argosy" in cast("dict[str, str]", settings["data"])["config.yaml"]


def policies(*values: Json) -> dict[str, dict[str, Json]]:
    network_policies = (obj for obj in objects(*values) if obj["kind"] == "NetworkPolicy")
    return {_name(obj): cast("dict[str, Json]", obj["spec"]) for obj in network_policies}


def test_network_policy_of_observers_allows_their_ports() -> None:
    values: Json = {"observer": {"enabled": True, "auth": "none"}}
    observers, operator = (
        policies(values)[f"NetworkPolicy {name}"] for name in ("ares-observer", "argosy-operator")
    )
    allowed = [port["port"] for rule in cast("list[Json]", observers["ingress"]) for port in _ports(rule)]
    assert allowed == ["https", "http", "metrics"]
    assert observers["egress"] == operator["egress"], "DNS and the API server"
    assert list(policies()) == ["NetworkPolicy argosy-operator"]
    assert policies(values, {"networkPolicy": {"enabled": False}}) == {}


def _ports(rule: Json) -> list[Json]:
    return cast("list[Json]", rule["ports"])


WARNINGS: dict[str, tuple[Json, str]] = {
    "observers with tokens: no warning": ({"observer": {"enabled": True}}, ""),
    "no observers: no warning": ({"observer": {"auth": "none", "nodePort": 30037}}, ""),
    "observers without tokens: warning about the cluster": (
        {"observer": {"enabled": True, "auth": "none"}},
        "phases and addresses of all AresJobs can be read without a token by everyone in the cluster.",
    ),
    "TrainingJobs with all features: no warning": ({"apis": {"et": True}, "features": {"sshKeys": True}}, ""),
    "TrainingJobs without ssh keys and without Secrets: no warning": (
        {"apis": {"et": True}, "et": {"createSshSecret": False}},
        "",
    ),
    "TrainingJobs without ssh keys: warning": (
        {"apis": {"et": True}},
        "TrainingJobs in ssh mode wait, unless they name a Secret with their keys.",
    ),
    "TrainingJobs without remote exec: warning": (
        {"apis": {"et": True}, "features": {"sshKeys": True, "remoteExec": False}},
        "all TrainingJobs wait before their launcher is created.",
    ),
    "observers without tokens on a node port: warning about the network of the nodes": (
        {"observer": {"enabled": True, "auth": "none", "nodePort": 30037}},
        "by everyone in the cluster, and by everyone who can reach port 30037 of a node.",
    ),
}


@pytest.mark.parametrize(("values", "want"), WARNINGS.values(), ids=WARNINGS.keys())
def test_warnings_about_values(values: Json, want: str) -> None:
    warning = CHART.warnings(NAMESPACE, CHART.values(values))
    assert warning.endswith(want) if want else not warning


def test_values_are_merged_as_helm_merges_them() -> None:
    under: Json = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merge_values(under, {"a": {"c": [2]}, "e": 3}) == {"a": {"b": 1, "c": [2]}, "d": 2, "e": 3}
    assert merge_values(under, {"a": {"b": None}}, final=True) == {"a": {"c": [1]}, "d": 2}
    assert merge_values({}, {"a": None}) == {"a": None}


def test_default_taints_of_notices_are_those_of_the_operator() -> None:
    notices = cast("Json", DEFAULTS["notices"])
    assert parse_taints(",".join(cast("list[str]", notices["taints"]))) == dict(DEFAULT_TAINTS)
