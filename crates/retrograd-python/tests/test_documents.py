"""Examples in docstrings and in docs/python.md, and the notebooks."""

import doctest
import importlib
import os
import pathlib
import re

import nbformat
import pytest
from nbclient import NotebookClient

SOURCE = pathlib.Path(os.environ["RETROGRAD_SOURCE"])
NAMES = ["_arrays", "denoiser", "estimators", "formulas", "models", "runs", "torch", "verifying"]
NOTEBOOKS = sorted((SOURCE / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", ["", *NAMES])
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"retrograd.{name}" if name else "retrograd")
    failed, tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0 and failed == 0


def test_examples_of_the_guide(tmp_path, monkeypatch):
    """Every block of Python in docs/python.md, in order, in one session."""
    monkeypatch.chdir(tmp_path)
    text = (SOURCE / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) > 5
    session = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), session)


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_run_and_are_small(path, tmp_path):
    assert path.stat().st_size < 400_000
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs, "a notebook is kept as it ran"
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not any(o.output_type == "error" for o in cell.outputs)


def test_a_notebook_follows_the_training_and_shows_the_report(tmp_path):
    train = "run = retrograd.train('moons', epochs=30, out='run', verify=False)"
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (f"import retrograd\n{train}", "run", "run.metrics")]
    )
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    bar, report, table = ([o.data["text/html"] for o in cell.outputs if "data" in o] for cell in notebook.cells)
    # One display that was updated, not one below the other.
    assert len(bar) == 1 and "epoch 30 of 30" in bar[0] and "width:100.0%" in bar[0]
    assert "<polyline" in bar[0] and "train_loss" in bar[0]
    assert report[0].startswith("<iframe srcdoc=") and "SHA-256" in report[0]
    assert table[0].count("<tr>") == 1 + 21
