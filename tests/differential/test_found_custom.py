"""What the oracle found about custom resources and ConfigMaps, and was mended.

The kind is the one that the oracle's sequences share: it is defined once, which costs the judge seconds.
"""

from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED as OWN
from tests.support.differential import (
    JSON_PATCH,
    STRATEGIC,
    Step,
    apply,
    delete,
    get,
    patch,
    post,
    put,
)
from tests.support.manifests import CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, config_map, definition, deployment
from tools.fuzzer.widget_kind import DEFINED, GROUP

WIDGETS = f"/apis/{GROUP}/v1/namespaces/$ns/widgets"
ONE = f"{WIDGETS}/a"
MAP = f"{CONFIG_MAPS}/a"
OWN_NAME = f"{DEFINITIONS}/widgets.$ns.example.com"
PRINTS = ("message", "details.causes.*.message")
"""Texts that show the whole of an object."""
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-0000-0000-00000000000a"}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}}


def widget(metadata: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": "a", **(metadata or {})},
        "spec": {"size": 3},
        **changes,
    }


def ruled(type: str, rule: str) -> dict[str, object]:
    """A definition in which a field has a rule."""
    field = {"type": type, "x-kubernetes-validations": [{"rule": rule}]}
    return definition({"type": "object", "properties": {"a": field}})


MADE = post(WIDGETS, widget(), save="made", shown=False)
VERSION: dict[str, object] = {"resourceVersion": "$made.metadata.resourceVersion"}

KINDS: dict[str, list[Step]] = {
    "a patch to another kind or version is looked at like any other": [
        MADE,
        patch(ONE, {"kind": ""}, hide=PRINTS),
        patch(ONE, {"kind": None}, hide=PRINTS),
        patch(ONE, {"apiVersion": None}),
        patch(ONE, {"apiVersion": "v2", "metadata": {"resourceVersion": None}}),
        patch(ONE, {"apiVersion": f"{GROUP}/v2"}),
        patch(ONE, {"kind": "Gadget", "metadata": {"ownerReferences": [{**OWNER, "kind": ""}]}}),
        patch(ONE, {"kind": "Gadget", "metadata": {"labels": {"a": 1}}}, hide=PRINTS),
        patch(ONE, {"kind": "Gadget", "metadata": {"name": "b"}}),
        patch(ONE, {"kind": "Gadget", "metadata": {"namespace": "b"}}),
    ],
    "a status of another kind is a status, of nobody": [MADE, patch(f"{ONE}/status", {"kind": "Gadget"})],
    "an update to another kind is looked at like any other": [
        put(ONE, widget(kind="ConfigMap")),
        put(ONE, {"apiVersion": f"{GROUP}/v1", "kind": "ConfigMap"}),
        MADE,
        put(ONE, widget(kind="ConfigMap")),
        put(ONE, widget({**VERSION, "labels": {"bad!": "1"}}, kind="ConfigMap")),
        put(ONE, widget({"labels": {"a": 1}}, kind="ConfigMap")),
        put(ONE, widget({"uid": "x"}, kind="ConfigMap")),
        put(f"{ONE}/status", widget(VERSION, kind="ConfigMap")),
    ],
    "something of another kind cannot be made": [
        post(WIDGETS, widget(kind="Gadget")),
        post(WIDGETS, widget({"labels": {"bad!": "1"}}, kind="Gadget")),
        post(WIDGETS, widget({"namespace": "x"}, kind="Gadget")),
        post(f"{WIDGETS}?fieldValidation=Strict", widget({"foo": 1}, kind="Gadget")),
        post(WIDGETS, widget(apiVersion="v1")),
    ],
    "apply of a version that cannot be read": [
        apply(MAP, {"apiVersion": "x/y/z", "kind": "ConfigMap"}),
        apply(MAP, {**config_map(), "apiVersion": "/v1"}),
    ],
}

APPLYING: dict[str, list[Step]] = {
    "times that are applied are not read": [
        apply(ONE, widget({"creationTimestamp": 1})),
        apply(ONE, widget({"creationTimestamp": "x"})),
        apply(ONE, widget({"generation": 1.5})),
        apply(MAP, config_map(creationTimestamp=1)),
        apply(MAP, {**config_map(creationTimestamp=1), "binaryData": {"b": "no base64!"}}),
    ],
    "an empty status that is applied changes nothing": [
        MADE,
        apply(ONE, widget(), manager="bob"),
        apply(f"{ONE}?force=true", widget(status={}), manager="bob"),
        apply(ONE, widget({"generation": 9}), manager="bob"),
        apply(f"{ONE}/status", widget(status={}), manager="bob"),
        apply(ONE, widget(status={"phase": "Up"}), manager="carol"),
    ],
    "what is applied is read before its uid is missed": [
        apply(ONE, widget({"uid": "x", "finalizers": ["example.com/a", "example.com/a"]})),
        apply(ONE, widget({"uid": "x"})),
    ],
    "apply of a status needs an object before anything else": [
        apply(f"{ONE}/status", {"apiVersion": f"{GROUP}/v1", "kind": "Widget"}),
        patch(f"{ONE}/status?fieldManager=alice", "[", "application/apply-patch+yaml"),
    ],
    "a map in the place of something else is owned with what is in it": [
        post(WIDGETS, widget(spec={"size": 3, "free": {"any": 1.5}}), shown=False),
        patch(f"{ONE}?fieldManager=bob", {"spec": {"free": {"any": {"on": True}}}}),
        patch(f"{ONE}?fieldManager=carol", {"spec": {"free": {"any": [1]}}}),
    ],
    "apply of null lays nothing over a map in a free field": [
        post(WIDGETS, widget(spec={"size": 3, "free": {"any": {"a": 1}, "one": 1}}), shown=False),
        apply(f"{ONE}?force=true", widget(spec={"free": {"any": None, "one": None}})),
    ],
    "items that repeat where they are dropped leave owners alone": [
        MADE,
        patch(f"{ONE}/status", {"spec": {"tags": ["a", "a"]}}),
        patch(f"{ONE}/status", {"spec": {"tags": [1]}}),
    ],
    "what was there before the first apply to a status": [
        MADE,
        patch(ONE, {"metadata": {"managedFields": [{}]}}, shown=False),
        apply(f"{ONE}/status", widget(status={"phase": "Up"})),
    ],
}

SCALING: dict[str, list[Step]] = {
    "a write of the scale takes the replicas out of what else their owner has": [
        post(WIDGETS, widget(spec={"size": 3, "replicas": 0}), shown=False),
        patch(f"{ONE}/scale", {}),
        get(ONE),
        patch(f"{ONE}/scale?fieldManager=bob", {"spec": {"replicas": 3}}),
        get(ONE),
        put(f"{ONE}/scale", SCALE),
        get(ONE),
        patch(ONE, [], JSON_PATCH),
    ],
    "replicas that nobody owns stay so": [
        MADE,
        patch(f"{ONE}/scale", {}),
        patch(f"{ONE}/scale", {"spec": {"replicas": 5}}),
        put(f"{ONE}/scale", SCALE),
        get(ONE),
    ],
    "a scale can be applied": [
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=2)),
        apply(f"{DEPLOYMENTS}/a/scale", {**SCALE, "spec": {"replicas": 7}}, manager="bob"),
        apply(f"{DEPLOYMENTS}/a/scale?force=true", {**SCALE, "spec": {"replicas": 7}}, manager="bob"),
        get(f"{DEPLOYMENTS}/a"),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}),
        get(f"{DEPLOYMENTS}/a"),
        apply(f"{DEPLOYMENTS}/a/scale", {"apiVersion": "v1", "kind": "Scale"}),
    ],
    "a scale of another object": [
        MADE,
        put(f"{ONE}/scale", {**SCALE, "metadata": {"name": "a", "namespace": "default"}}),
        put(f"{ONE}/scale", {**SCALE, "metadata": {"name": "a", "uid": "x"}}),
        put(f"{ONE}/scale", {**SCALE, "metadata": {"name": "a", "resourceVersion": "abc"}}),
    ],
}

ASKING: dict[str, list[Step]] = {
    "what comes after a subresource is not looked at": [
        MADE,
        get(f"{ONE}/status/more"),
        get(f"{ONE}/scale/more"),
        get(f"{ONE}/more/status"),
        delete(f"{ONE}/status/more"),
        get(f"/apis/{GROUP}/v1/widgets/a"),
    ],
    "a dry run does not get as far as to drop a version": [
        post(f"{WIDGETS}?dryRun=All", widget({"resourceVersion": "abc"})),
        post(f"{CONFIG_MAPS}?dryRun=All", config_map(resourceVersion="5")),
        apply(f"{MAP}?dryRun=All", config_map(resourceVersion="5")),
        post(CONFIG_MAPS, config_map("Bad_Name", resourceVersion="5")),
    ],
    "a deletion that takes finalizers away loses the version that it asks for": [
        post(CONFIG_MAPS, config_map(finalizers=["orphan"]), save="held", shown=False),
        delete(
            MAP,
            {
                "propagationPolicy": "Background",
                "preconditions": {"resourceVersion": "$held.metadata.resourceVersion"},
            },
        ),
        delete(MAP, {"propagationPolicy": "Background"}),
    ],
    "what an update leaves out of a deleted object is nobody's any more": [
        post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, shown=False),
        delete(MAP, {"propagationPolicy": "Foreground"}, shown=False),
        apply(f"{MAP}?force=true", {"apiVersion": "v1", "kind": "ConfigMap"}),
        put(MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        patch(MAP, {"metadata": {"finalizers": None}}),
    ],
    "a name that is taken, and a beginning of one": [
        post(CONFIG_MAPS, config_map(), shown=False),
        post(CONFIG_MAPS, config_map(generateName="g-")),
    ],
    "owners named twice are told before the object is looked for": [
        put(MAP, config_map(ownerReferences=[OWNER, OWNER])),
        post(WIDGETS, widget({"ownerReferences": [OWNER, OWNER]}, kind="Gadget")),
    ],
    "the order of a list that is none": [
        post(CONFIG_MAPS, config_map(), shown=False),
        patch(MAP, {"metadata": {"finalizers": None, "$setElementOrder/finalizers": []}}, STRATEGIC),
        patch(MAP, {"metadata": {"finalizers": [], "$setElementOrder/finalizers": []}}, STRATEGIC),
        patch(MAP, {"metadata": {"finalizers": "x", "$setElementOrder/finalizers": []}}, STRATEGIC),
        patch(MAP, {"metadata": {"$setElementOrder/finalizers": None}}, STRATEGIC),
        patch(MAP, {"metadata": {"finalizers": ["example.com/a"]}}, STRATEGIC),
        patch(MAP, {"metadata": {"finalizers": [1]}}, STRATEGIC),
        patch(MAP, {"metadata": {"$deleteFromPrimitiveList/finalizers": [1]}}, STRATEGIC),
    ],
    "of several wrong types the first in order is told": [
        post(CONFIG_MAPS, config_map(), shown=False),
        patch(MAP, {"metadata": [], "data": {"l": 1.5}}, hide=PRINTS),
    ],
    "a definition keeps its names, and the versions that it was ever stored in": [
        *OWN,
        patch(OWN_NAME, {"spec": {"names": {"plural": "gadgets"}}}),
        patch(OWN_NAME, {"spec": {"names": {"kind": "Gadget"}}}),
        patch(OWN_NAME, {"spec": {"conversion": {"strategy": "Nonsense"}}}),
        patch(OWN_NAME, {"spec": {"versions": []}}, hide=PRINTS),
        patch(OWN_NAME, [{"op": "copy", "from": "/spec/versions/0", "path": "/spec/versions/-"}], JSON_PATCH),
        patch(
            OWN_NAME,
            [{"op": "replace", "path": "/spec/versions/0/name", "value": "v2"}],
            JSON_PATCH,
            hide=PRINTS,
        ),
    ],
    "a rule that reads a field of what has none": [
        post(f"{DEFINITIONS}?dryRun=All", ruled("integer", "self.b > 1"), hide=PRINTS),
        post(f"{DEFINITIONS}?dryRun=All", ruled("string", "self.b == 'x'"), hide=PRINTS),
    ],
}

CASES = {**KINDS, **APPLYING, **SCALING, **ASKING}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_found_custom(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare([*DEFINED, *steps])
