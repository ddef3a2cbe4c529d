"""The committed tables are those that their tools generate from the pinned version of Kubernetes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.assets import Programs

ROOT = Path(__file__).parent.parent
TABLES = {
    "builtin_kinds": "src/argosy/local/schema/builtin.json",
    "protobuf_fields": "src/argosy/local/apiserver/protobuf.json",
    "template_fields": "src/argosy/kinds/template.json",
}


@pytest.mark.parametrize(("tool", "table"), TABLES.items(), ids=TABLES.keys())
def test_a_committed_table_equals_the_output_of_its_tool(tool: str, table: str, tmp_path: Path) -> None:
    if tool != "template_fields" and shutil.which("go") is None:
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            pytest.fail("go is not installed")
        pytest.skip("go is not installed, which downloads the sources of the table")
    output = tmp_path / "table.json"
    subprocess.run([sys.executable, "-m", f"tools.{tool}", output], check=True, cwd=ROOT)
    assert output.read_text() == (ROOT / table).read_text(), f"run: python -m tools.{tool}"


@pytest.mark.parametrize(("tool", "table"), TABLES.items(), ids=TABLES.keys())
def test_a_table_names_its_tool_and_the_pinned_version(tool: str, table: str) -> None:
    content = json.loads((ROOT / table).read_text())
    assert content["generated"] == f"by tools.{tool}"
    assert content["kubernetes"] == f"v{Programs().version}"


@pytest.mark.parametrize("table", TABLES.values())
def test_a_table_is_marked_as_generated(table: str) -> None:
    assert f"{table} linguist-generated" in (ROOT / ".gitattributes").read_text().splitlines()


def test_the_docs_of_the_local_control_plane_have_the_pinned_version() -> None:
    text = (ROOT / "docs/users/local-control-plane.md").read_text()
    assert f"Kubernetes {Programs().version}" in text
