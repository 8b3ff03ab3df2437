"""Whole runs from Python."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pandas
import pytest
import retrograd

KAN = {
    "model": {"family": "kan", "sizes": [2, 3, 1]},
    "train": {"epochs": 6, "optimizer": {"kind": "adam", "lr": 0.02}},
}
CLASSES = {
    "model": {
        "family": "network",
        "layers": [{"kind": "dense", "out": 8}, {"kind": "tanh"}, {"kind": "dense", "out": 2}],
    },
    "train": {"epochs": 20, "optimizer": {"kind": "adam", "lr": 0.02}},
}


def data(n=200):
    x = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return x, x[:, 0] * x[:, 1]


def test_a_ready_experiment_leaves_a_whole_run(tmp_path):
    seen = []
    run = retrograd.train("moons", out=tmp_path / "moons", epochs=4, callback=seen.append)
    assert [told["epoch"] for told in seen] == [1, 2, 3, 4]
    assert run.summary["epochs"] == 4 and run.summary["verification"]
    assert run.metrics["epoch"].tolist() == [1, 2, 3, 4]
    assert run.metrics["train_loss"].tolist() == [told["train_loss"] for told in seen]
    assert isinstance(run.metrics.frame(), pandas.DataFrame)
    assert "<iframe" in run._repr_html_() and "curve" in run.report().html
    assert run.experiment["train"]["epochs"] == 4 and run.family == "network"


def test_callbacks_see_every_epoch(tmp_path):
    """Also those that are not evaluated, with the mean loss since the last evaluation; what is raised
    there stops the run, and it goes on to the same bits."""
    seen = []
    run = retrograd.train("karate", out=tmp_path / "run", epochs=25, verify=False, callback=seen.append)
    assert [told["epoch"] for told in seen] == list(range(1, 26))
    always = {"epoch", "step", "train_loss", "lr", "seconds"}
    assert all(always <= told.keys() for told in seen)
    evaluated = [told for told in seen if told.keys() > always]
    assert [told["epoch"] for told in evaluated] == run.metrics["epoch"].tolist() == [10, 20, 25]
    assert [told["train_loss"] for told in evaluated] == run.metrics["train_loss"].tolist()
    losses = [told["train_loss"] for told in seen]
    assert len(set(losses)) == 25
    # An epoch has one step: what the tenth adds to the mean of nine is its own loss.
    last = 10 * losses[9] - 9 * losses[8]
    assert losses[10] < last < losses[0]

    def stop(told):
        if told["epoch"] == 13:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        retrograd.train("karate", out=tmp_path / "part", epochs=25, verify=False, callback=stop)
    resumed = []
    whole = retrograd.train(resume=tmp_path / "part", verify=False, callback=resumed.append)
    assert [told["epoch"] for told in resumed] == list(range(14, 26))
    assert resumed[0]["train_loss"] == losses[13]
    tensors, again = run.tensors(), whole.tensors()
    assert all(np.array_equal(tensors[name], again[name]) for name in tensors)


def test_the_command_and_python_give_the_same_bits(tmp_path):
    retrograd.train("moons", out=tmp_path / "here", epochs=3, n_jobs=1, verify=False)
    command = [sys.executable, "-m", "retrograd", "train", "moons", "--epochs", "3", "-q", "--no-verify"]
    subprocess.run([*command, "--out", tmp_path / "there"], check=True, capture_output=True)
    here, there = (retrograd.open_run(tmp_path / n).tensors() for n in ("here", "there"))
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_arrays_in_the_place_of_files(tmp_path):
    x, y = data()
    run = retrograd.train(KAN, x, y, out=tmp_path / "run", seed=5)
    assert run.predict(x).shape == (200,)
    model = run.model()
    # The run's predictions are the model's: nothing is normalised here.
    assert np.array_equal(model(x)[:, 0], run.predict(x))
    weighted = retrograd.train(KAN, x, y, sample_weight=y**2, out=tmp_path / "weighted", seed=5)
    assert not np.array_equal(weighted.predict(x), run.predict(x))
    text = (tmp_path / "run" / "experiment.toml").read_text()
    again = retrograd.train(text, out=tmp_path / "again")
    assert np.array_equal(again.predict(x), run.predict(x))


@pytest.mark.parametrize("words", [False, True])
def test_classes_have_their_own_words(words, tmp_path):
    x, y = data()
    labels = np.where(y > 0, "same", "other") if words else (y > 0).astype(int)
    run = retrograd.train(CLASSES, x, labels, out=tmp_path / "run", verify=False)
    assert (run.predict(x) == labels).mean() > 0.9
    shares = run.predict_proba(x)
    assert shares.shape == (200, 2) and np.allclose(shares.sum(axis=1), 1, atol=1e-5)


def test_a_run_goes_on_to_the_same_bits(tmp_path):
    x, y = data()
    whole = retrograd.train(KAN, x, y, out=tmp_path / "whole", verify=False)

    def stop(told):
        if told["epoch"] == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        retrograd.train(KAN, x, y, out=tmp_path / "part", verify=False, callback=stop)
    part = retrograd.train(resume=tmp_path / "part", verify=False)
    for name, value in whole.tensors().items():
        assert np.array_equal(value, part.tensors()[name])
    assert part.metrics["epoch"].tolist() == whole.metrics["epoch"].tolist()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    program = """
        import os, signal, sys, threading, retrograd
        def late(told):
            if told["epoch"] == 3:
                os.kill(os.getpid(), signal.SIGINT)
        try:
            retrograd.train("moons", out=sys.argv[1], epochs=100000, callback=late, verify=False)
        except retrograd.Interrupted as stopped:
            print(stopped)
            run = retrograd.train(resume=stopped.folder, epochs=1 + int(1e9) % 7 + 60, verify=False)
            print(run.summary["epochs"])
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    first, second = told.stdout.strip().splitlines()
    assert "the state is saved" in first and "resume=" in first
    assert int(second) >= 3
    assert (tmp_path / "run" / "checkpoint.safetensors").is_file()


def test_other_threads_of_python_go_on_while_one_trains(tmp_path):
    turns = [0]
    ended = threading.Event()

    def count():
        while not ended.is_set():
            turns[0] += 1
            ended.wait(0.001)

    other = threading.Thread(target=count)
    other.start()
    x, y = data(2000)
    retrograd.train({**KAN, "train": {**KAN["train"], "epochs": 600}}, x, y, out=tmp_path / "run")
    ended.set()
    other.join()
    # Some seconds; a lock that is held would leave a handful of turns.
    assert turns[0] > 50


def test_an_automaton_is_trained_and_becomes_a_circuit(tmp_path):
    run = retrograd.train("checkerboard-small", out=tmp_path / "run", epochs=3, verify=False)
    circuit = run.circuit()
    state = np.zeros((16, 16, circuit.channels))
    assert circuit.step(state, steps=4).shape == state.shape
    assert run.model().spec["channels"] == circuit.channels


def test_a_denoiser_is_trained_and_used_on_arrays(tmp_path):
    run = retrograd.train("denoise", out=tmp_path / "run", epochs=1, verify=False)
    image = np.random.default_rng(0).normal(100, 20, (70, 90))
    clean = run.predict(image)
    assert clean.shape == (70, 90) and clean.std() < image.std()
    assert np.array_equal(retrograd.denoise(image[None], tmp_path / "run")[0], clean)


def test_a_graphs_run_has_its_model(tmp_path):
    run = retrograd.train("karate", out=tmp_path / "run", epochs=3, verify=False)
    network = run.model()
    nodes = network.spec["features"]
    edges = np.array([[0, 1], [1, 0]])
    assert network(np.eye(nodes)[:2], edges).shape[0] == 2


def test_a_graphs_run_predicts_its_nodes_and_other_files(tmp_path):
    run = retrograd.train("karate", out=tmp_path / "run", verify=False)
    predicted, shares = run.predict(), run.predict_proba()
    assert predicted.shape == (34,) and shares.shape == (34, 2)
    assert np.allclose(shares.sum(axis=1), 1, atol=2e-6)
    # The club's two founders lead its two halves.
    assert predicted[0] != predicted[33] and len(set(predicted)) == 2
    with pytest.raises(TypeError, match="predicts files"):
        run.predict(np.eye(34))
    with pytest.raises(ValueError, match="the club is built in"):
        run.predict("other.csv")

    # An edge list of one's own: two cliques, joined by one edge, predicted again and on other edges.
    pairs = [(a, b) for g in (0, 6) for a in range(g, g + 6) for b in range(g, g + 6) if a < b]
    (tmp_path / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in [*pairs, (0, 6)]))
    (tmp_path / "features.csv").write_text("a,b\n" + "".join(f"{n // 6},{n % 6}\n" for n in range(12)))
    (tmp_path / "labels.csv").write_text("label\n" + "".join(f"{'xy'[n // 6]}\n" for n in range(12)))
    files = {name: str(tmp_path / f"{name}.csv") for name in ("edges", "features", "labels")}
    described = {
        "model": {"family": "graph", "features": 2, "layers": [{"kind": "gcn", "out": 2}]},
        "data": {"kind": "edge_list", **files},
        "train": {"epochs": 60, "optimizer": {"kind": "adam", "lr": 0.1}},
    }
    run = retrograd.train(described, out=tmp_path / "own", verify=False)
    predicted = run.predict()
    assert list(predicted) == ["xy"[best] for best in run.predict_proba().argmax(axis=1)]
    assert np.array_equal(run.predict([files["edges"], files["features"]]), predicted)


def test_frames_files_and_arrays_are_predicted_alike(tmp_path):
    x, y = data()
    table = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})
    table.to_csv(tmp_path / "table.csv", index=False)
    described = {**KAN, "data": {"file": str(tmp_path / "table.csv"), "targets": "y"}}
    run = retrograd.train(described, out=tmp_path / "run", verify=False)
    expected = run.predict(tmp_path / "table.csv")
    assert np.array_equal(run.predict(table[["a", "b"]]), expected)
    with pytest.raises(ValueError, match="learnt numbers"):
        run.predict_proba(table)


def test_the_bar_and_the_curve_are_drawn():
    from retrograd._progress import Terminal, curve

    shown = Terminal("a", 4)
    for epoch in range(1, 5):
        shown("epoch", {"epoch": epoch, "train_loss": 1 / epoch, "validation_loss": 2 / epoch})
    assert list(shown.figures.values()) == ["train_loss 0.25", "validation_loss 0.5"]
    assert len(shown.losses) == 4
    assert curve(shown.losses, shown.validation).count("<polyline") == 2


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda p: retrograd.train("mons", out=p), ValueError, "experiment"),
        (lambda p: retrograd.train("nothing.toml", out=p), FileNotFoundError, "nothing.toml"),
        (lambda p: retrograd.train({**KAN, "modle": {}}, out=p), ValueError, "modle"),
        (lambda p: retrograd.train(KAN, out=p), ValueError, "file"),
        (lambda p: retrograd.train(KAN, *data(), out=p, device="tpu"), ValueError, "device"),
        (lambda p: retrograd.train(KAN, data()[0], data()[1][:5], out=p), ValueError, "5 samples"),
        (lambda p: retrograd.train(KAN, data()[0] * np.nan, data()[1], out=p), ValueError, "finite"),
        (lambda p: retrograd.train(out=p), TypeError, "needs an experiment"),
        (lambda p: retrograd.train(resume=p / "none"), FileNotFoundError, "none"),
        (lambda p: retrograd.open_run(p / "none"), FileNotFoundError, "none"),
        (lambda p: retrograd.train("moons", y=[1], out=p), TypeError, "without x"),
    ],
)
def test_mistakes_are_said(call, error, words, tmp_path):
    with pytest.raises(error, match=words):
        call(tmp_path / "run")
