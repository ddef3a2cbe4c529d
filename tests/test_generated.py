"""The generated tables are those that their scripts generate from the pinned version of Kubernetes."""

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
    "generate-kinds": "src/argosy/local/schema/builtin.json",
    "generate-protobuf": "src/argosy/local/apiserver/protobuf.json",
    "generate-template": "src/argosy/kinds/template.json",
}


@pytest.mark.parametrize(("script", "table"), TABLES.items(), ids=TABLES.keys())
def test_a_committed_table_equals_the_output_of_its_script(script: str, table: str, tmp_path: Path) -> None:
    if script != "generate-template" and shutil.which("go") is None:
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            pytest.fail("go is not installed")
        pytest.skip("go is not installed, which downloads the sources of the table")
    output = tmp_path / "table.json"
    subprocess.run([sys.executable, ROOT / "scripts" / script, output], check=True)
    assert output.read_text() == (ROOT / table).read_text(), f"run scripts/{script}"


@pytest.mark.parametrize(("script", "table"), TABLES.items(), ids=TABLES.keys())
def test_a_table_names_its_script_and_the_pinned_version(script: str, table: str) -> None:
    content = json.loads((ROOT / table).read_text())
    assert content["generated"] == f"by scripts/{script}"
    assert content["kubernetes"] == f"v{Programs().version}"


@pytest.mark.parametrize("table", TABLES.values())
def test_a_table_is_marked_as_generated(table: str) -> None:
    assert f"{table} linguist-generated" in (ROOT / ".gitattributes").read_text().splitlines()


def test_the_docs_of_the_local_control_plane_have_the_pinned_version() -> None:
    text = (ROOT / "docs/users/local-control-plane.md").read_text()
    assert f"Kubernetes {Programs().version}" in text
