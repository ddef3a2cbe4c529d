"""Tables, which `kubectl get` prints."""

import datetime
from collections.abc import Sequence
from typing import cast

from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import bad_request
from argosy.local.schema.model import Json
from argosy.local.schema.tables.table import Columns, Include, builtin_columns, custom_columns, table_for


def table_of(served: Served, objects: Sequence[Json], metadata: Json, include: str, columns: bool) -> Json:
    """Return a Table of these objects; `include` is what each row contains in addition to its cells."""
    if include not in ("None", "Metadata", "Object"):
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return table_for(
        _columns(served),
        objects,
        now=datetime.datetime.now(datetime.UTC),
        metadata=metadata,
        include=cast("Include", include),
        headers=columns,
    )


def _columns(served: Served) -> Columns:
    if served.custom is not None:
        return custom_columns(served.custom.columns)
    return builtin_columns(served.group, served.kind)
