"""Handles token and access reviews, which are answered and not stored."""

from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.auth import Authenticator
from argosy.local.apiserver.create import read_admitted
from argosy.local.apiserver.http import Response, User, reply
from argosy.local.apiserver.options import invalid_error, user_agent_manager, write_options
from argosy.local.apiserver.policy_rules import Attributes, Rule
from argosy.local.apiserver.rbac import Authorizer, together
from argosy.local.apiserver.status import bad_request
from argosy.local.apiserver.timestamps import now_text
from argosy.local.apiserver.tokens import ISSUER
from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_str, get_strings

KINDS = frozenset(
    {
        "tokenreviews",
        "selfsubjectreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
    }
)


async def create_review(call: Call, authorizer: Authorizer, authenticator: Authenticator) -> Response:
    """Respond to a review with its status."""
    options = write_options(call.request, "CreateOptions")
    review = await read_admitted(call, options)
    metadata = get_map(review, "metadata")
    user = call.request.user
    match call.served.plural:
        case "tokenreviews":
            review["status"] = _token_status(get_map(review, "spec"), authenticator)
        case "selfsubjectreviews":
            metadata["creationTimestamp"] = now_text()
            review["status"] = {"userInfo": _user_info(user)}
        case "selfsubjectrulesreviews":
            answer = _rules_review(authorizer, user, get_str(review, "spec", "namespace"))
            return reply({"kind": review["kind"], "apiVersion": review["apiVersion"], **answer}, 201)
        case "selfsubjectaccessreviews":
            _check(review, call.served.plural)
            review["status"] = _access_status(authorizer, user, get_map(review, "spec"))
        case _:
            _check(review, call.served.plural)
            spec = get_map(review, "spec")
            review["status"] = _access_status(authorizer, _subject(spec), spec)
    status = review.pop("status")
    tracked = object_schema.track_update(None, review, call.served, user_agent_manager(call.request), "")
    return reply({**tracked, "status": status}, 201)


def _token_status(spec: Json, authenticator: Authenticator) -> Json:
    token, audiences = get_str(spec, "token"), get_strings(spec, "audiences")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    user = authenticator.find(token, audiences or None)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _user_info(user), "audiences": audiences or [ISSUER]}


def _user_info(user: User) -> Json:
    info: Json = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": user.extra}
    return {key: value for key, value in info.items() if value}


def _subject(spec: Json) -> User:
    return User(get_str(spec, "user"), get_str(spec, "uid"), tuple(get_strings(spec, "groups")))


def _access_status(authorizer: Authorizer, user: User, spec: Json) -> Json:
    if "nonResourceAttributes" in spec:
        action = get_map(spec, "nonResourceAttributes")
        attributes = Attributes(user, get_str(action, "verb"), path=get_str(action, "path"))
    else:
        action = get_map(spec, "resourceAttributes")
        fields = ("verb", "group", "resource", "subresource", "name", "namespace")
        attributes = Attributes(user, *(get_str(action, field) for field in fields))
    allowed, why = authorizer.allowed(attributes)
    return {"allowed": allowed, "reason": why} if why else {"allowed": allowed}


def _check(review: Json, plural: str) -> None:
    """Raise 422 unless a review has a subject, one kind of attributes, and no metadata."""
    spec, errors = get_map(review, "spec"), list[FieldError]()
    if "resourceAttributes" in spec and "nonResourceAttributes" in spec:
        why = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], why))
    elif "resourceAttributes" not in spec and "nonResourceAttributes" not in spec:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", None, why))
    if plural != "selfsubjectaccessreviews" and not (get_str(spec, "user") or get_strings(spec, "groups")):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    if metadata := get_map(review, "metadata"):
        errors.append(invalid("metadata", metadata, "must be empty"))
    if errors:
        raise invalid_error("authorization.k8s.io", "", "", errors)


def _rules_review(authorizer: Authorizer, user: User, namespace: str) -> Json:
    """Return the rules of a user in a namespace; as in Kubernetes, without metadata and spec."""
    if not namespace:
        raise bad_request("no namespace on request")
    rules, problems = authorizer.rules(user, namespace)
    status: Json = {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)} for rule in rules if rule.paths
        ],
        "incomplete": False,
    }
    if problems:
        status["evaluationError"] = together(problems)
    return {"metadata": {}, "spec": {}, "status": status}


def _resource_rule(rule: Rule) -> Json:
    shown: Json = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.groups),
        "resources": list(rule.resources),
    }
    return {**shown, "resourceNames": list(rule.names)} if rule.names else shown
