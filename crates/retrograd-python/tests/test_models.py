"""Models on arrays: calls, states, graphs, automata."""

import json
import os
import pathlib
import pickle
import subprocess

import networkx
import numpy as np
import pytest
import retrograd

LAYERS = [{"kind": "dense", "out": 4}, {"kind": "silu"}, {"kind": "kan", "out": 2, "grid": 3, "degree": 3}]


def batch(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def test_states_go_in_and_out_and_decide_everything():
    first, second = (retrograd.Network([3], LAYERS, seed=s) for s in (0, 1))
    x = batch(5, 3)
    assert not np.array_equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first(x), second(x))
    assert np.array_equal(first(x), pickle.loads(pickle.dumps(first))(x))


def test_gradients_are_those_of_differences():
    network = retrograd.Network([3], LAYERS)
    x, d_y = batch(5, 3), batch(5, 2)
    network.params = network.params.astype(np.float64)
    gradients, d_x = network.gradients(x, d_y)
    flat = lambda x: float((network(x) * d_y.astype(np.float64)).sum())
    step = np.zeros((5, 3))
    step[2, 1] = 1e-5
    numeric = (flat(x + step) - flat(x - step)) / 2e-5
    # Central differences in f64: h² from the curvature, and rounding over h.
    assert abs(numeric - d_x[2, 1]) < 1e-8 * max(1, abs(numeric))
    assert set(gradients) == {name for name, *_ in network._engine.places()}


def test_float64_is_the_reference_and_close_to_float32():
    network = retrograd.Network([3], LAYERS)
    narrow = network(batch(5, 3))
    network.params = network.params.astype(np.float64)
    wide = network(batch(5, 3))
    assert narrow.dtype == np.float32 and wide.dtype == np.float64
    # Sums of some twenty products, each rounded: far below a hundred units of the last place.
    assert np.abs(narrow - wide).max() < 100 * 2**-24 * np.abs(wide).max()


def test_a_row_depends_on_its_own_input_alone():
    network = retrograd.Network([3], LAYERS)
    x = batch(3000, 3)
    whole = network(x)
    for part in (slice(0, 1), slice(7, 9), slice(100, 900)):
        assert np.array_equal(whole[part], network(x[part]))


def test_graphs_come_from_everywhere():
    import torch
    from torch_geometric.data import Data

    edges = np.array([[0, 1, 2, 0], [1, 2, 0, 2]])
    network = retrograd.GraphNetwork(2, [{"kind": "sage", "out": 3}])
    x = batch(3, 2)
    expected = network(x, retrograd.Graph(edges))
    assert np.array_equal(expected, network(x, edges))
    assert np.array_equal(expected, network(x, Data(edge_index=torch.from_numpy(edges), num_nodes=3)))
    directed = networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
    assert np.allclose(expected, network(x, directed), rtol=0, atol=1e-6)
    both = retrograd.Graph.of(networkx.karate_club_graph())
    assert (both.nodes, both.edges) == (34, 2 * 78)


def test_graph_rules_and_several_graphs():
    loops = [[0, 0, 1, 1], [0, 1, 0, 0]]
    assert retrograd.Graph(loops).edges == 4
    kept = retrograd.Graph(loops, self_loops="drop", duplicates="drop")
    assert kept.kept.tolist() == [1, 2] and kept.edge_index.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="self-loop"):
        retrograd.Graph(loops, self_loops="refuse")
    two = retrograd.Graph([[0, 2], [1, 3]], nodes=4, batch=[0, 0, 1, 1])
    pooled = retrograd.GraphNetwork(2, [{"kind": "gcn", "out": 3}, {"kind": "mean_pool"}])
    assert two.graphs == 2 and pooled(batch(4, 2), two).shape == (2, 3)


def life(state):
    """Conway's rule on a torus."""
    around = sum(np.roll(state, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)) - state
    return ((around == 3) | ((around == 2) & (state == 1))).astype(int)


def test_a_circuit_steps_grids_and_is_written_in_all_forms(tmp_path):
    source = pathlib.Path(os.environ["RETROGRAD_SOURCE"]) / "crates" / "retrograd" / "src" / "logic" / "life_circuit.json"
    circuit = retrograd.Circuit(source.read_text())
    state = np.random.default_rng(0).integers(0, 2, (40, 60))
    expected = state
    for _ in range(12):
        expected = life(expected)
    after = circuit.step(state[:, :, None], steps=12)
    assert np.array_equal(after[:, :, 0], expected.astype(bool))
    two = circuit.step(np.stack([state, 1 - state])[..., None], steps=1)
    assert np.array_equal(two[1, :, :, 0], life(1 - state).astype(bool))
    resting = circuit.step(state[:, :, None], steps=2, fire=np.zeros((2, 40, 60), dtype=bool))
    assert np.array_equal(resting[:, :, 0], state.astype(bool))
    assert json.loads(circuit.text())
    assert np.array_equal(pickle.loads(pickle.dumps(circuit)).step(state[:, :, None], 12), after)
    assert "module" in circuit.verilog()
    (tmp_path / "circuit.c").write_text(circuit.c())
    subprocess.run(["cc", "-c", "circuit.c", "-o", "circuit.o"], cwd=tmp_path, check=True)


def test_an_automaton_is_soft_and_hard():
    automaton = retrograd.Automaton(
        channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=3
    )
    # Gates begin as wires that pass their first input on, so hard states stay hard but for e⁻¹⁰.
    state = np.random.default_rng(0).integers(0, 2, (1, 6, 9, 2))
    soft = automaton(state)
    hard = automaton.circuit().step(state[0], steps=3)
    assert np.abs(soft[0] - hard).max() < 0.05
    again = pickle.loads(pickle.dumps(automaton))
    assert np.array_equal(again(state), soft)


def test_verify_finds_right_gradients_right():
    network = retrograd.Network([3], LAYERS)
    assert retrograd.verify(network, batch(6, 3), batch(6, 2)).passed
    graph = retrograd.GraphNetwork(2, [{"kind": "gat", "out": 3}])
    edges = retrograd.Graph([[0, 1, 2], [1, 2, 0]])
    report = retrograd.verify(graph, batch(3, 2), batch(3, 3), graph=edges, quick=True)
    assert report.passed and report.rows and "differences" in report.text
    automaton = retrograd.Automaton(
        channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=2
    )
    # As they begin, gates pass their first input on, and gradients of others all but vanish.
    draw = np.random.default_rng(1)
    automaton.params = draw.normal(0, 1, automaton.params.size).astype(np.float32)
    state = draw.uniform(0.1, 0.9, (1, 3, 4, 2))
    assert retrograd.verify(automaton, state, state * 0.5, loss="sum_squares", quick=True).passed


def test_bundles_are_verified_and_a_wrong_one_fails(tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import save_file

    folder = pathlib.Path(os.environ["RETROGRAD_SOURCE"]) / "crates" / "retrograd" / "tests" / "reference"
    path = folder / "kan_2_5_1.safetensors"
    assert retrograd.verify(path).passed
    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        about = file.metadata()
    name = next(n for n in tensors if n.startswith("grad/"))
    tensors[name] = -tensors[name]
    save_file(tensors, tmp_path / "wrong.safetensors", about)
    report = retrograd.verify([path, tmp_path / "wrong.safetensors"])
    assert not report.passed and not report
