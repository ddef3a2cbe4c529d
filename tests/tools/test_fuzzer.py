"""The oracle's own parts: sequences that can be made again, cutting down, and the account."""

from collections.abc import Sequence

from tests.support.differential import Step, get, post
from tools.fuzzer import sequences
from tools.fuzzer.known_differences import without_known_differences
from tools.fuzzer.report import Account, Disagreement
from tools.fuzzer.shrink import shrink


def test_a_seed_and_a_number_always_make_the_same_sequence() -> None:
    assert [sequences.make(1, number) for number in range(50)] == [
        sequences.make(1, number) for number in range(50)
    ]
    assert sequences.make(1, 7) != sequences.make(2, 7)


def test_every_family_and_every_kind_comes_up() -> None:
    steps = [step for number in range(2000) for step in sequences.make(3, number).steps]
    assert {step.method for step in steps} >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert {step.type for step in steps if step.method == "PATCH"} >= {
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    }
    paths = " ".join(step.path for step in steps)
    for words in (
        *("configmaps", "secrets", "services", "serviceaccounts", "pods", "jobs", "leases", "widgets"),
        *(
            "customresourcedefinitions",
            "namespaces/$ns-a",
            "/status",
            "/scale",
            "watch=1",
            "continue=",
            "force=",
        ),
        *(
            "force=",
            "dryRun=All",
            "fieldValidation=Strict",
            "labelSelector=",
            "fieldSelector=",
            "resourceVersion=",
        ),
    ):
        assert words in paths, words


def test_a_sequence_is_cut_down_to_the_steps_and_fields_that_matter() -> None:
    body = {"kind": "Pod", "spec": {"wrong": 1, "right": 2}, "more": [1, 2]}
    steps = [get("/a"), post("/b", {"x": 1}), get("/c"), post("/d", body), get("/e")]

    def disagrees(candidate: Sequence[Step]) -> bool:
        bodies = [step.body for step in candidate if step.path == "/d"]
        return any(isinstance(one, dict) and "wrong" in one.get("spec", {}) for one in bodies)

    (left,) = shrink(steps, disagrees)
    assert left.path == "/d"
    assert left.body == {"kind": "Pod", "spec": {"wrong": 1}}


def test_few_sequences_may_need_to_be_sent_again() -> None:
    account = Account()
    for number in range(1000):
        account.note(5, None, helped=number < 5)
    assert account.problem == ""
    account.note(5, None, helped=True)
    assert "agree only when sent again" in account.problem


def test_the_same_way_of_disagreeing_is_told_once() -> None:
    account = Account()

    def disagreement(code: int) -> Disagreement:
        sequence = sequences.Sequence(1, 1, (get("/api/v1/namespaces/$ns/pods/a"),))
        return Disagreement(sequence, [{"code": code, "body": {}}], [{"code": 404, "body": {}}])

    assert account.note(1, disagreement(200), helped=False)
    assert not account.note(1, disagreement(200), helped=False)
    assert account.problem == "2 of 2 sequences disagree"
    assert list(account.disagreed) == ["GET pods: code | N / N"]


def test_bookmarks_are_compared_by_kind_and_version_only() -> None:
    empty: dict[str, object] = {"spec": {"containers": None}, "status": {}}
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    events = [{"type": "BOOKMARK", "object": {**bookmark, **empty}}]
    assert without_known_differences(events) == [{"type": "BOOKMARK", "object": bookmark}]
