"""Answers admission reviews of AresJobs: adds defaults to their spec, and rejects invalid ones."""

import msgspec

from argosy.dialects.ares import admission
from argosy.kinds.meta import Json
from argosy.operator.webhooks import AdmissionRequest, patch_response


def mutate(request: AdmissionRequest) -> Json:
    """Return a JSON patch with the defaults that the spec leaves out."""
    patch = admission.default_patch(msgspec.json.decode(request.object, type=admission.SubmittedJob))
    return patch_response(patch) if patch else {"allowed": True}


def validate(request: AdmissionRequest) -> Json:
    """Return a rejection if the spec is invalid."""
    new = msgspec.json.decode(request.object, type=admission.SubmittedJob)
    old = msgspec.json.decode(request.old_object, type=admission.SubmittedJob | None)
    problems = admission.problems(new, old)
    if problems is None:
        return {"allowed": True}
    return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": str(problems)}}
