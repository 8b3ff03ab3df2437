"""Bad input: exceptions of the right type in the library's words, never an abort, never a panic."""

import numpy as np
import pytest
import retrograd
import scipy.sparse
from retrograd import KanRegressor, _retrograd

LAYERS = [{"kind": "kan", "out": 2, "grid": 3, "degree": 3}]


def network():
    return retrograd.Network([3], LAYERS)


GOOD = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "x, error, words",
    [
        (np.array([["a", "b", "c"]]), TypeError, "numbers"),
        ("abc", TypeError, "numbers"),
        (None, TypeError, "got None"),
        (GOOD[:, :2], ValueError, r"\[4, 2\]"),
        (GOOD[0], ValueError, r"\[3\]"),
        (GOOD[:0], ValueError, "at least one"),
        (GOOD * np.nan, ValueError, "finite"),
        (GOOD * np.inf, ValueError, "finite"),
        (GOOD.astype(complex), ValueError, "complex"),
        (scipy.sparse.csr_matrix(GOOD), TypeError, "sparse"),
        ([[1.0, 2.0], [1.0]], ValueError, "lengths|needs"),
        (np.array([[object()] * 3]), TypeError, "objects"),
        (np.full((2, 3), 1e300), ValueError, "finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_bad_batches_are_refused_and_the_model_goes_on(x, error, words):
    model = network()
    expected = model(GOOD)
    with pytest.raises(error, match=words):
        model(x)
    assert np.array_equal(model(GOOD), expected)


def test_any_order_any_type_and_read_only_arrays_are_taken():
    model, wide = network(), np.repeat(GOOD, 2, axis=1)
    expected = model(GOOD)
    fixed = GOOD.copy()
    fixed.flags.writeable = False
    for same in (wide[:, ::2], np.asfortranarray(GOOD), fixed, GOOD.tolist(), GOOD.astype(">f4")):
        assert np.array_equal(model(same), expected)
    assert model(np.ones((2, 3), dtype=bool)).shape == (2, 2)


@pytest.mark.parametrize("name", ["forward", "backward", "plot", "verify", "set_buffer", "init"])
def test_the_engine_takes_no_nonsense(name):
    engine = network()._engine
    for arguments in ([], [None] * 2, ["a", "b"], [object()] * 4, [np.zeros(3)] * 7, [-1], [1e9]):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            getattr(engine, name)(*arguments)


def test_raw_calls_say_what_they_need():
    model = network()
    engine, params = model._engine, model.params
    with pytest.raises(ValueError, match="C order"):
        engine.forward(params, np.asfortranarray(GOOD))
    with pytest.raises(TypeError, match="int64"):
        engine.forward(params, GOOD.astype(np.int64))
    with pytest.raises(ValueError, match="params"):
        engine.forward(params[:-1], GOOD)
    with pytest.raises(ValueError, match="float32 and float64"):
        engine.forward(params, GOOD.astype(np.float64))
    _, tape = engine.forward(params, GOOD, keep=True)
    with pytest.raises(ValueError, match="gradient"):
        engine.backward(params, GOOD, tape, np.zeros(3, dtype=np.float32))
    with pytest.raises(ValueError, match="forward before it"):
        engine.backward(params, GOOD[:2].copy(), tape, np.zeros((2, 2), dtype=np.float32))
    with pytest.raises(ValueError, match="another model"):
        network()._engine.backward(params, GOOD, tape, np.zeros((4, 2), dtype=np.float32))
    d_params, d_x = engine.backward(params, GOOD, tape, np.ones((4, 2), dtype=np.float32))
    assert np.isfinite(d_params).all() and np.isfinite(d_x).all()


@pytest.mark.parametrize(
    "edges, more, error, words",
    [
        ([[0, 5], [1, 0]], {"nodes": 3}, ValueError, "edge 1: got source 5, needs a node below 3"),
        ([[0, -1], [1, 0]], {"nodes": 3}, ValueError, "edge 1: got source -1"),
        ([[0, 1, 2]], {}, ValueError, r"\[2, edges\]"),
        ([[0.5], [1.0]], {}, ValueError, "fractions"),
        ([["a"], ["b"]], {}, TypeError, "whole numbers"),
        ([[], []], {}, ValueError, "nodes: got 0"),
        ([[0], [1]], {"nodes": -4}, ValueError, "nodes: got -4"),
        ([[0], [1]], {"self_loops": "eat"}, ValueError, "self_loops"),
        ([[0], [1]], {"batch": [0, 5, 2]}, ValueError, "nodes|graph"),
        ([[0], [1]], {"batch": [-1, 0]}, ValueError, "negative"),
    ],
)
def test_bad_graphs_are_refused(edges, more, error, words):
    with pytest.raises(error, match=words):
        retrograd.Graph(edges, **more)


def test_graph_networks_refuse_what_does_not_fit():
    model = retrograd.GraphNetwork(3, [{"kind": "gcn", "out": 2}])
    graph = retrograd.Graph([[0, 1], [1, 0]])
    good = np.ones((2, 3))
    for x, words in (
        (np.ones((3, 3)), "a row for each of 2 nodes"),
        (np.ones((2, 4)), "4 per node"),
        (good * np.nan, "finite"),
        (np.ones(3), r"\[nodes, features\]"),
    ):
        with pytest.raises(ValueError, match=words):
            model(x, graph)
    with pytest.raises(ValueError, match="edge weights"):
        model(good, graph, edge_weight=[1.0, 2.0])
    assert model(good, graph).shape == (2, 2)


def test_states_that_do_not_fit_change_nothing():
    model = network()
    expected, state = model(GOOD), model.state_dict()
    name = next(iter(state))
    for wrong, words in (
        ({}, "needs it with shape"),
        ({**state, name: state[name][:1]}, "got the shape"),
        ({**state, name: state[name] * np.nan}, "finite"),
        ({**state, "more": np.zeros(2)}, "doesn't have"),
    ):
        with pytest.raises(ValueError, match=words):
            model.load_state_dict(wrong)
        assert np.array_equal(model(GOOD), expected)


@pytest.mark.parametrize(
    "layers, words",
    [
        ([], "layers|layer"),
        ([{"kind": "nonsense"}], "nonsense"),
        ([{"out": 3}], "kind"),
        ([{"kind": "dense", "out": 0}], "out"),
        ([{"kind": "dense", "out": -3}], "out|invalid value|-3"),
        ([{"kind": "dense", "out": "many"}], "many"),
        ([{"kind": "kan", "out": 1, "grid": 1000, "degree": 3}], "grid"),
        ([{"kind": "conv2d", "out": 1, "kernel": 3}], "channels"),
        ([{"kind": "dense", "out": 2**40}], "out|memory|values"),
    ],
)
def test_bad_layers_are_refused(layers, words):
    with pytest.raises(ValueError, match=words):
        retrograd.Network([3], layers)


def test_bad_automata_and_circuits_are_refused():
    good = dict(channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=2)
    for more, words in (
        ({"channels": 0}, "channels"),
        ({"perception": [8, 1]}, "perception"),
        ({"fire_rate": 2.0}, "fire_rate"),
        ({"boundary": "cliff"}, "cliff"),
    ):
        with pytest.raises(ValueError, match=words):
            retrograd.Automaton(**{**good, **more})
    model = retrograd.Automaton(**good)
    for state in (np.zeros((4, 4, 2)), np.zeros((1, 4, 4, 3)), np.full((1, 4, 4, 2), np.nan)):
        with pytest.raises(ValueError):
            model(state)
    with pytest.raises(ValueError):
        retrograd.Circuit("{}")
    with pytest.raises(ValueError):
        retrograd.Circuit("nonsense")
    circuit = model.circuit()
    with pytest.raises(ValueError, match="channels|state"):
        circuit.step(np.zeros((4, 4, 5)))
    with pytest.raises(ValueError, match="fire"):
        circuit.step(np.zeros((4, 4, 2)), 2, fire=np.ones((1, 4, 4)))
    with pytest.raises(ValueError, match="steps"):
        circuit.step(np.zeros((4, 4, 2)), -1)


def test_images_that_cannot_be_are_refused():
    for image, words in (
        (np.zeros(5), "rows, columns"),
        (np.full((80, 80), np.nan), "finite"),
        (np.zeros((0, 80, 80)), "at least one"),
    ):
        with pytest.raises(ValueError, match=words):
            retrograd.Denoiser(epochs=1).fit(image)


def test_formulas_need_data():
    for x, y in (([], []), ([[1.0]], [1.0, 2.0]), ([[1.0]] * 9, [1.0] * 9)):
        with pytest.raises(ValueError):
            retrograd.find_formula(x, y)


def test_a_model_is_usable_after_a_failure():
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    model = KanRegressor(epochs=3)
    with pytest.raises(ValueError):
        model.fit(x * np.nan, x[:, 0])
    assert model.fit(x, x[:, 0]).predict(x).shape == (60,)
    with pytest.raises(FloatingPointError, match="not finite"):
        KanRegressor(epochs=50, learning_rate=1e30).fit(x, x[:, 0])


def test_a_panic_would_be_an_exception_of_its_own(capfd):
    with pytest.raises(retrograd.InternalError, match="on purpose"):
        _retrograd.panic_for_a_test()
    assert issubclass(retrograd.InternalError, RuntimeError)
    assert network()(GOOD).shape == (4, 2)


def test_random_nonsense_never_panics():
    draw = np.random.default_rng(0)
    model = network()
    kinds = [np.float32, np.float64, np.int8, np.uint64, bool]
    for _ in range(300):
        shape = draw.integers(0, 5, draw.integers(0, 4))
        with np.errstate(invalid="ignore"):
            x = draw.normal(0, 10.0 ** draw.integers(-3, 30), shape).astype(kinds[draw.integers(5)])
        if draw.random() < 0.3:
            x = x.T[..., ::-1] if x.ndim else x
        try:
            y = model(x)
        except (TypeError, ValueError):
            continue
        assert y.shape == (x.shape[0], 2)
