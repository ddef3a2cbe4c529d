"""Tests for quotas with a controller that counts usage: rejected pods, and capacity that becomes free."""

import json
from dataclasses import replace

import pytest

from tests.support.field_paths import dig
from tests.support.simulator import RUN_SECONDS

from .conftest import Json, Planes, normal

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.quota.example.com"},
    "spec": {
        "group": "quota.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def used(items: list[Json]) -> object:
    return [(dig(item, "metadata.name"), dig(item, "status.used")) for item in items]


def failures(items: list[Json]) -> object:
    """What keeps pods from being made, in the words of the Deployment."""
    return [
        normal(str(condition["reason"]) + ": " + str(condition["message"]))
        for item in items
        for condition in item["status"].get("conditions", [])  # type: ignore[attr-defined]
        if condition["type"] == "ReplicaFailure"
    ]


def test_pods_beyond_a_quota_are_refused_until_others_are_deleted(planes: Planes) -> None:
    planes.same("create", "quota", "q", "--hard=pods=2,count/pods=5")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "0", "count/pods": "0"})])
    planes.same("create", "deployment", "web", "--image=i", "--replicas=3")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "2", "count/pods": "2"})])
    messages = planes.settled("deployments", shown=failures)
    assert messages == [
        'FailedCreate: pods "web-<hash>-<5>" is forbidden: exceeded quota: q, requested: pods=1, '
        "used: pods=2, limited: pods=2"
    ]
    planes.same("describe", "quota", "q")
    planes.same("get", "quota", "--no-headers", "-o", "custom-columns=N:.metadata.name,U:.status.used")
    patch = json.dumps({"spec": {"hard": {"pods": "4"}}})
    planes.same("patch", "quota", "q", "--type=merge", f"--patch={patch}")
    planes.rolled_out("web")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "3", "count/pods": "3"})])
    planes.eventually("deployments", shown=failures, want=[])
    planes.same("scale", "deployment/web", "--replicas=0")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "0", "count/pods": "0"})])


def test_ended_pod_counts_only_as_an_object(planes: Planes) -> None:
    planes.same("create", "quota", "q", "--hard=pods=1,count/pods=2")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "0", "count/pods": "0"})])
    for name in ("a", "b"):
        planes.say("run", name, "--image=i", "--restart=Never", f"--annotations={RUN_SECONDS}=0")
        planes.say("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s")
        count = "1" if name == "a" else "2"
        planes.eventually("quota", shown=used, want=[("q", {"pods": "0", "count/pods": count})])
    planes.same("run", "c", "--image=i", code=1)
    planes.say("delete", "pod/a")
    planes.eventually("quota", shown=used, want=[("q", {"pods": "0", "count/pods": "1"})])


@pytest.mark.long
def test_objects_of_other_kinds_are_counted(planes: Planes) -> None:
    planes.same("create", "quota", "q", "--hard=count/deployments.apps=1,secrets=1")
    deployments = "count/deployments.apps"
    planes.eventually("quota", shown=used, want=[("q", {deployments: "0", "secrets": "0"})])
    planes.same("create", "secret", "generic", "s")
    planes.same("create", "secret", "generic", "t", code=1)
    planes.same("create", "deployment", "d", "--image=i")
    planes.same("create", "deployment", "e", "--image=i", code=1)
    planes.eventually("quota", shown=used, want=[("q", {deployments: "1", "secrets": "1"})])
    planes.say("delete", "secret/s", "deployment/d")
    planes.eventually("quota", shown=used, want=[("q", {deployments: "0", "secrets": "0"})])


@pytest.mark.long
def test_custom_resources_are_counted(planes: Planes) -> None:
    """Ours alone: the real controller looks for new kinds only now and then."""
    ours = replace(planes, servers=planes.servers[1:])
    widgets = "count/widgets.quota.example.com"
    ours.say("apply", "-f", "-", stdin=json.dumps(WIDGETS))
    ours.say("wait", "crd/widgets.quota.example.com", "--for=condition=Established", "--timeout=60s")
    ours.say("create", "quota", "q", f"--hard={widgets}=2")
    ours.eventually("quota", shown=used, want=[("q", {widgets: "0"})])
    for name, code in (("a", 0), ("b", 0), ("c", 1)):
        widget = {"apiVersion": "quota.example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        ours.say("create", "-f", "-", stdin=json.dumps(widget), code=code)
    ours.eventually("quota", shown=used, want=[("q", {widgets: "2"})])
    ours.say("delete", "widgets/a")
    ours.eventually("quota", shown=used, want=[("q", {widgets: "1"})])
    ours.say("delete", "crd/widgets.quota.example.com")
