"""What the options of `argosy operator` say about registries reaches the driver that asks them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from argosy.checkpoint.image_requests import VerifyImages
from argosy.dialects.spot.settings import SpotSettings
from argosy.operator.apis.base import with_setting
from argosy.operator.apis.spot import OPTIONS, registry_driver

IMAGE = "0.0.0.0:1/team/train:main-1"


async def problem_of(settings: SpotSettings) -> str:
    with pytest.raises(OSError, match=r".+") as raised:
        await registry_driver(settings).call(VerifyImages({"main": IMAGE}), {})
    return str(raised.value)


async def test_file_of_the_option_is_that_by_which_registries_are_trusted(tmp_path: Path) -> None:
    (option,) = (option for option in OPTIONS if option.flag == "--registry-ca")
    settings = with_setting(SpotSettings(), option.field, str(tmp_path / "ca.crt"))
    assert isinstance(settings, SpotSettings)
    assert await problem_of(settings) == f"--registry-ca {tmp_path}/ca.crt: No such file or directory"
    assert "https://0.0.0.0:1/" in await problem_of(SpotSettings())
    without_tls = replace(settings, plain_http_registries="other, 0.0.0.0:1")
    assert "http://0.0.0.0:1/" in await problem_of(without_tls)
