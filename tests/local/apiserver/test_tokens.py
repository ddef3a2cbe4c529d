"""A service account token is valid while its objects exist with the same uid."""

from pathlib import Path

import pytest

from argosy.local.apiserver.pki import ensure_pki
from argosy.local.apiserver.store import Store
from argosy.local.apiserver.tokens import Signer
from argosy.local.schema.model import Json

UID = "11111111-2222-3333-4444-555555555555"


def account(uid: str, **more: object) -> Json:
    return {"metadata": {"name": "a", "namespace": "ns", "uid": uid, **more}}


ACCOUNTS: dict[str, tuple[Json, bool]] = {
    "account with the uid of the token: valid": (account(UID), True),
    "account with another uid: invalid": (account("other"), False),
    "account with another uid and the uid of the token in an annotation: invalid": (
        account("other", annotations={"uid": UID}),
        False,
    ),
    "account with another uid and an owner with the uid of the token: invalid": (
        account("other", ownerReferences=[{"name": "a", "uid": UID}]),
        False,
    ),
}


@pytest.mark.parametrize("case", ACCOUNTS.values(), ids=ACCOUNTS)
async def test_token_is_valid_for_the_account_with_its_uid(tmp_path: Path, case: tuple[Json, bool]) -> None:
    stored_account, want = case
    ensure_pki(tmp_path, ["127.0.0.1"])
    store = Store(tmp_path / "store.db")
    store.start()
    try:
        await store.put("serviceaccounts", stored_account, {}, ())
        signer = Signer(tmp_path / "pki" / "sa.key", store)
        token, _ = signer.sign(account(UID), [], 600, None)
        assert (signer.user(token) is not None) is want
    finally:
        store.stop()
