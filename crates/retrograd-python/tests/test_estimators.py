"""Estimators, in scikit-learn's own words and ours."""

import pickle

import numpy as np
import pandas
import pytest
import sympy
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import retrograd
from retrograd import Denoiser, KanClassifier, KanRegressor, NetworkClassifier, NetworkRegressor

ALL = [KanRegressor, KanClassifier, NetworkRegressor, NetworkClassifier]


# Nothing is expected to fail: the list of such checks is left out.
@parametrize_with_checks([kind() for kind in ALL])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def regression():
    x, y = make_friedman1(300, n_features=5, noise=0.1, random_state=0)
    return x, y


@pytest.mark.parametrize("kind", [KanRegressor, NetworkRegressor])
def test_a_regression_is_learnt_in_the_targets_units(kind):
    x, y = regression()
    y = 1000 * y - 5000
    model = kind(random_state=1).fit(x[:200], y[:200])
    assert model.score(x[200:], y[200:]) > 0.9
    both = kind(random_state=1, epochs=60).fit(x, np.column_stack([y, x[:, 0]]))
    assert both.predict(x).shape == (300, 2)


@pytest.mark.parametrize("kind", ALL)
def test_a_gpu_learns_what_the_cpu_learns(kind):
    # Mesa's software Vulkan where there is no other; without an adapter this fails.
    x, y = regression()
    y = (y > 14).astype(int) if "Classifier" in kind.__name__ else y
    fit = lambda device: kind(epochs=3, random_state=3, device=device).fit(x, y)
    cpu, gpu = fit("cpu").params_, fit("gpu").params_
    assert np.array_equal(gpu, fit("gpu").params_)
    # That `device` reaches the GPU shows in the last bits; that it trains there as the CPU does, in the
    # way that the parameters went. The kernels themselves are held to their bounds in Rust.
    assert not np.array_equal(cpu, gpu)
    moved = np.abs(cpu - kind(epochs=1, random_state=3).fit(x, y).params_).max()
    assert np.abs(cpu - gpu).max() < 1e-2 * moved


@pytest.mark.parametrize("kind", [KanClassifier, NetworkClassifier])
def test_classes_come_back_in_their_own_words(kind):
    x, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    model = kind(epochs=60).fit(x, words)
    assert model.score(x, words) > 0.95
    shares = model.predict_proba(x)
    assert np.allclose(shares.sum(axis=1), 1) and list(model.classes_) == sorted(set(words))
    assert (model.classes_[shares.argmax(axis=1)] == model.predict(x)).all()


@pytest.mark.parametrize("kind", ALL)
def test_the_same_seed_gives_the_same_bits_whatever_the_threads_and_the_order(kind):
    x, y = regression()
    y = (y > 14).astype(int) if "Classifier" in kind.__name__ else y
    fit = lambda **more: kind(epochs=5, random_state=3, **more)
    first = fit(n_jobs=1).fit(x, y).params_
    assert np.array_equal(first, fit(n_jobs=2).fit(x, y).params_)
    assert np.array_equal(first, fit(n_jobs=7).fit(x[::-1], y[::-1]).params_)
    assert not np.array_equal(first, kind(epochs=5, random_state=4).fit(x, y).params_)


@pytest.mark.parametrize("kind", ALL)
def test_a_weight_is_a_number_of_repetitions_to_the_last_bit(kind):
    x, y = regression()
    y = (y > 14).astype(int) if "Classifier" in kind.__name__ else y
    weights = np.random.default_rng(0).integers(0, 4, len(x))
    weighted = kind(epochs=5).fit(x, y, sample_weight=weights)
    repeated = kind(epochs=5).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights, axis=0))
    assert np.array_equal(weighted.params_, repeated.params_)
    assert not np.array_equal(weighted.params_, kind(epochs=5).fit(x, y).params_)


@pytest.mark.parametrize("kind", ALL)
def test_pickles_copies_and_files_predict_the_same_bits(kind, tmp_path):
    x, y = regression()
    frame = pandas.DataFrame(x, columns=["a", "b", "c", "d", "e"])
    y = np.where(y > 14, "high", "low").astype(object) if "Classifier" in kind.__name__ else y
    model = kind(hidden=(4,), epochs=5).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    expected = model.predict(frame)
    assert (pickle.loads(pickle.dumps(model)).predict(frame) == expected).all()
    model.save(tmp_path / "model.npz")
    loaded = kind.load(tmp_path / "model.npz")
    assert (loaded.predict(frame) == expected).all()
    assert loaded.get_params() == model.get_params()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a", "c", "d", "e"]])
    other = next(k for k in ALL if k is not kind)
    with pytest.raises(ValueError, match=f"holds a {kind.__name__}"):
        other.load(tmp_path / "model.npz")


def test_pipelines_grids_and_scores():
    x, y = regression()
    pipeline = make_pipeline(StandardScaler(), KanRegressor(epochs=20))
    search = GridSearchCV(pipeline, {"kanregressor__hidden": [(2,), (4,)]}, cv=2, n_jobs=2)
    search.fit(x, y)
    alone = GridSearchCV(pipeline, {"kanregressor__hidden": [(2,), (4,)]}, cv=2, n_jobs=1).fit(x, y)
    assert np.array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert cross_val_score(clone(pipeline), x, y, cv=2).mean() > 0.5


def test_early_stopping_keeps_the_best():
    x, y = regression()
    model = NetworkRegressor(epochs=500, early_stopping=True, patience=5).fit(x, y)
    assert model.n_iter_ < 500 and model.summary_["best_epoch"] <= model.n_iter_


def test_a_formula_is_found_in_the_columns_units_and_names():
    x = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    frame = pandas.DataFrame({"force": 3 * x[:, 0] + 5, "mass": x[:, 1]})
    y = 2 * frame["force"] + 7 * frame["mass"] ** 2 - 1
    model = KanRegressor(hidden=(), epochs=300).fit(frame, y)
    formula = model.formula()
    force, mass = sympy.symbols("force mass")
    difference = sympy.expand(formula.sympy() - (2 * force + 7 * mass**2 - 1))
    largest = max(abs(float(c)) for c in sympy.Poly(difference, force, mass).coeffs())
    # Coefficients have three decimals; half a unit of the last is what rounding leaves.
    assert largest <= 5.1e-4 * 10, (str(formula), difference)
    assert "force" in str(formula) and "mathrm{mass}" in formula.latex
    assert formula.error < 1e-2 * y.std()


def test_a_picture_is_drawn(tmp_path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    x, y = regression()
    model = KanRegressor(hidden=(3,), epochs=5).fit(x, y)
    figure, axes = pyplot.subplots()
    picture = model.plot(ax=axes)
    assert picture.svg.startswith("<svg") and len(axes.images) == 1
    picture.save(tmp_path / "network.png")
    assert (tmp_path / "network.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="svg or .png"):
        picture.save(tmp_path / "network.jpg")


def test_a_denoiser_denoises_and_is_kept(tmp_path):
    from numpy.random import default_rng

    draw = default_rng(0)
    rows, columns = np.mgrid[0:96, 0:96]
    clean = np.stack([128 + 60 * np.sin((rows + s) / 9) * np.cos((columns - s) / 7) for s in range(6)])
    noisy = clean + draw.normal(0, 25, clean.shape)
    model = Denoiser(epochs=8, patch=32).fit(noisy[:5], clean[:5])
    after = model.transform(noisy[5])
    error = lambda image: np.sqrt(np.mean((image - clean[5]) ** 2))
    assert error(after) < 0.6 * error(noisy[5])
    assert np.array_equal(after, pickle.loads(pickle.dumps(model)).transform(noisy[5]))
    model.save(tmp_path / "run")
    assert np.array_equal(after, Denoiser.load(tmp_path / "run").transform(noisy[5]))
    # Tiles decide nothing but the rounding of sums.
    tiled = Denoiser.load(tmp_path / "run")
    tiled.memory_mib = 8
    large = np.tile(noisy[5], (3, 3))
    assert np.abs(tiled.transform(large) - model.transform(large)).max() < 1e-3
    alone = Denoiser(epochs=2, patch=32).fit(noisy)
    assert alone.transform(noisy[:2]).shape == (2, 96, 96)


@pytest.mark.parametrize("kind", ALL)
def test_a_fitted_estimator_is_verified(kind):
    x, y = regression()
    y = (y > 14).astype(int) if "Classifier" in kind.__name__ else y
    model = kind(hidden=(3,), epochs=20).fit(x, y)
    report = retrograd.verify(model, quick=True)
    assert report.passed, report.text


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"hidden": (0,)}, "out"),
        ({"epochs": 0}, "epochs: got 0"),
        ({"batch_size": -1}, "batch_size: got -1"),
        ({"learning_rate": -1.0}, "learning_rate: got -1.0"),
        ({"device": "tpu"}, 'device: got "tpu"'),
        ({"n_jobs": 0}, "n_jobs: got 0"),
        ({"early_stopping": True, "validation_fraction": 2.0}, "validation_fraction: got 2.0"),
    ],
)
def test_settings_that_cannot_be_are_said(settings, words):
    x, y = regression()
    with pytest.raises(ValueError, match=words):
        NetworkRegressor(**{"epochs": 1, **settings}).fit(x, y)
