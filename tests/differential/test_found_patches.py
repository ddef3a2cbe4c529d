"""What the oracle found about the bodies of patches that cannot be read, and was mended."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import GO_PRINTS, JSON_PATCH, MERGE, STRATEGIC, Step, patch, post
from tests.support.manifests import CONFIG_MAPS, config_map

BODIES = (
    *("nonsense", "{", "[", "null", "[]", "1", '"text"', "{}", '{"a":}', "{} {}", "[1]", "[null]"),
    *('{"kind": 5}', '[{"op":1}]', '[{"op":"add"}]', '[{"op":"add","path":5,"value":1}]'),
    '[{"op":"add","path":"/data","value":{"a":"b"},"x":1}]',
    '[{"op":"add","path":"/data","path":"/data","value":{"a":"c"}}]',
    '[{"op":"add","path":"/nonsense","value":1,"x":1}]',
)


@pytest.mark.parametrize("type", [JSON_PATCH, MERGE, STRATEGIC])
@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_bodies(compare: Callable[[Sequence[Step]], None], type: str, validation: str) -> None:
    path = f"{CONFIG_MAPS}/a?fieldValidation={validation}"
    compare(
        [
            post(CONFIG_MAPS, config_map(), shown=False),
            *(patch(path, body, type, hide=GO_PRINTS) for body in BODIES),
        ]
    )
