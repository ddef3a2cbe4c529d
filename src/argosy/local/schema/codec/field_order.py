"""The order in which Go writes what it holds: structs by their fields, maps by their keys.

Nobody sees it in objects, which are the same in any order, but in what is told of their fields.
"""

from argosy.local.schema.model import Schema


def in_order(value: object, schema: Schema | None) -> object:
    """A copy of a value that fits its schema, with the fields of all objects in order."""
    if isinstance(value, list):
        items = schema.items if schema is not None else None
        return [in_order(item, items) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.structure.properties if schema is not None else {}
    more = schema.additional if schema is not None else None
    names = [name for name in fields if name in value]
    names += sorted(name for name in value if name not in fields)
    return {name: in_order(value[name], fields.get(name, more)) for name in names}
