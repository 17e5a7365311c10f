"""The notebook of the documentation runs in an empty folder."""

import os

import nbformat
import pytest
from nbclient import NotebookClient
from pages import ROOT

NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_notebook_runs_again_and_keeps_what_it_trained(tmp_path):
    finished = []
    for _ in range(2):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(notebook, timeout=1_800, resources={"metadata": {"path": str(tmp_path)}}).execute()
        assert "True" in notebook.cells[-2].outputs[0]["data"]["text/html"]
        finished.append({path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*.safetensors")})
    assert finished[0] == finished[1] != {}
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart"]
