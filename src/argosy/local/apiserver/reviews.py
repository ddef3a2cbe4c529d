"""Questions about identity and permission: reviews are created, answered and never stored."""

from argosy.local.apiserver import shape
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.auth import Authenticator
from argosy.local.apiserver.create import check_identity, read_checked
from argosy.local.apiserver.http import Response, User, reply
from argosy.local.apiserver.options import invalid_error, user_agent_manager, write_options
from argosy.local.apiserver.rbac import Attributes, Authorizer
from argosy.local.apiserver.status import bad_request
from argosy.local.apiserver.times import now_text
from argosy.local.apiserver.tokens import ISSUER
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.reading import part, strings, text

KINDS = frozenset(
    {
        "tokenreviews",
        "selfsubjectreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "localsubjectaccessreviews",
        "selfsubjectrulesreviews",
    }
)


async def create_review(call: Call, authorizer: Authorizer, authenticator: Authenticator) -> Response:
    """Answer a review."""
    options = write_options(call.request, "CreateOptions")
    review = check_identity(await read_checked(call, options), call)
    review = shape.admit_fields(review, call.served, options.validation, call.request.warnings)
    metadata = part(review, "metadata")
    user = call.request.user
    match call.served.plural:
        case "tokenreviews":
            review["status"] = _token_status(part(review, "spec"), authenticator)
        case "selfsubjectreviews":
            metadata["creationTimestamp"] = now_text()
            review["status"] = {"userInfo": _user_info(user)}
        case "selfsubjectrulesreviews":
            review["status"] = _rules_status(authorizer, user, text(review, "spec", "namespace"))
        case "selfsubjectaccessreviews":
            review["status"] = _access_status(authorizer, user, part(review, "spec"))
        case _:
            review["status"] = _access_status(
                authorizer, _spoken_of(part(review, "spec")), part(review, "spec")
            )
    spec, status = {key: value for key, value in review.items() if key != "status"}, review["status"]
    tracked = shape.track_update(None, spec, call.served, user_agent_manager(call.request), "")
    return reply({**tracked, "status": status}, 201)


def _token_status(spec: Json, authenticator: Authenticator) -> Json:
    token, audiences = text(spec, "token"), strings(spec, "audiences")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    user = authenticator.find(token, audiences or None)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _user_info(user), "audiences": audiences or [ISSUER]}


def _user_info(user: User) -> Json:
    info: Json = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": user.extra}
    return {key: value for key, value in info.items() if value}


def _spoken_of(spec: Json) -> User:
    return User(text(spec, "user"), text(spec, "uid"), tuple(strings(spec, "groups")))


def _access_status(authorizer: Authorizer, user: User, spec: Json) -> Json:
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        error = invalid("spec.resourceAttributes", spec.get("resourceAttributes"), why)
        raise invalid_error("authorization.k8s.io", "", "", [error])
    if "nonResourceAttributes" in spec:
        asked = part(spec, "nonResourceAttributes")
        attributes = Attributes(user, text(asked, "verb"), path=text(asked, "path"))
    else:
        asked = part(spec, "resourceAttributes")
        attributes = Attributes(
            user,
            text(asked, "verb"),
            text(asked, "group"),
            text(asked, "resource"),
            text(asked, "subresource"),
            text(asked, "name"),
            text(asked, "namespace"),
        )
    allowed, why = authorizer.allowed(attributes)
    return {"allowed": allowed, "reason": why} if why else {"allowed": allowed}


def _rules_status(authorizer: Authorizer, user: User, namespace: str) -> Json:
    rules = authorizer.rules(user, namespace)
    return {
        "resourceRules": [rule.json() for rule in rules if not rule.paths],
        "nonResourceRules": [rule.json() for rule in rules if rule.paths],
        "incomplete": False,
    }
