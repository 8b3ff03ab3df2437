"""The wheel: what it holds, how fast it is imported, and the command that it brings."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
import retrograd


def run(*arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, **options)


def test_nothing_is_imported_from_the_source():
    folder = pathlib.Path(retrograd.__file__).resolve().parent
    assert "site-packages" in folder.parts, folder
    assert (folder / "py.typed").is_file() and (folder / "_retrograd.pyi").is_file()


def test_the_wheel_is_small_and_needs_numpy_alone():
    wheel = pathlib.Path(os.environ["RETROGRAD_WHEEL"])
    assert wheel.stat().st_size < 15e6
    assert "abi3" in wheel.name and "cp310" in wheel.name
    needed = importlib.metadata.requires("retrograd")
    assert [n.split(">")[0].split(";")[0].strip() for n in needed] == ["numpy"]


def test_the_import_is_short_beside_numpys():
    # What numpy itself takes is not ours; the best of some, on a machine that others use too.
    program = (
        "import sys, time; import numpy; t = time.perf_counter(); import retrograd; "
        "t = time.perf_counter() - t; "
        "assert not {'sklearn', 'torch', 'pandas'} & set(sys.modules), 'heavy'; print(t)"
    )
    times = [float(run(sys.executable, "-c", program, check=True).stdout) for _ in range(5)]
    assert min(times) < 0.2, times


def test_the_command_is_there_and_has_the_same_version():
    command = pathlib.Path(sysconfig.get_path("scripts")) / "retrograd"
    told = run(command, "--version", check=True).stdout.split()
    assert told == ["retrograd", retrograd.__version__]
    assert importlib.metadata.version("retrograd") == retrograd.__version__
    assert "moons" in run(sys.executable, "-m", "retrograd", "train", "--list", check=True).stdout


def test_the_commands_mistakes_have_its_exit_codes():
    command = pathlib.Path(sysconfig.get_path("scripts")) / "retrograd"
    told = run(command, "train", "mons")
    assert told.returncode == 2 and 'did you mean "moons"' in told.stderr
    assert run(command, "--nonsense").returncode == 2


def test_every_public_name_is_there_and_documented():
    for name in retrograd.__all__:
        value = getattr(retrograd, name)
        assert name == "__version__" or value.__doc__, name
    with pytest.raises(AttributeError, match="nonsense"):
        retrograd.nonsense


def test_type_checkers_understand_the_package(tmp_path):
    # The stub against what was compiled, then a user's program, with the mistake in it found.
    # (That classes of Rust have a layout of their own is no matter of types.)
    stubtest = [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases"]
    checked = run(*stubtest, "retrograd._retrograd", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nimport retrograd\n\n"
        "x = np.zeros((4, 2))\n"
        "model = retrograd.KanRegressor(epochs=3)\n"
        "run: retrograd.Run = retrograd.train('moons', epochs=2)\n"
        "shares: np.ndarray = run.predict_proba(x)\n"
        "names: list[str] = retrograd.experiments()\n"
        "retrograd.train('moons', epochs='two')\n"
    )
    checked = run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", program, cwd=tmp_path)
    lines = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert len(lines) == 1 and 'program.py:9' in lines[0] and "epochs" in lines[0], checked.stdout
