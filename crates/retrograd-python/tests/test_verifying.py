"""`verify.torch`, `.jax`, `.numpy` and `.function`: right code passes, wrong code is found, and said what it looks like."""

import functools
import inspect
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from retrograd import verify
from retrograd.checking import bounds, sizes
from retrograd.checking.likeness import likeness
from retrograd.checking.rounding import Rounding

f32 = np.float32


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(f32)


def failed(report):
    return [row for row in report.rows if row["verdict"] == "fail"]


# What bounds are made of.


def test_students_factor_is_scipys():
    # scipy comes with scikit-learn.
    from scipy import stats

    for degrees in (3, 8, 16):
        for elements in (1, 1000, 10**6):
            expected = stats.t.isf(bounds.ALPHA / elements / 2, degrees)
            assert bounds.factor(degrees, elements) == pytest.approx(expected, rel=1e-9)


def test_numbers_that_a_type_holds_are_left_alone_and_others_are_right_on_average():
    x = normal(1000).astype(np.float64)
    assert np.array_equal(Rounding("float32", 1).round(x), x)
    off = x + 0.3 * np.ldexp(1.0, np.frexp(x)[1] - 24)
    runs = np.array([Rounding("float32", seed).round(off) for seed in range(200)])
    assert np.all((runs - off) != 0) and abs(np.mean((runs - off) / np.abs(off))) < 2e-10


@pytest.mark.parametrize("terms", [2, 37, 1000])
def test_the_error_of_sums_is_that_of_float32_or_more_and_not_much_more(terms):
    x = normal(40, terms)
    exact = x.astype(np.float64).sum(1)
    one_by_one = functools.reduce(np.add, list(x.T))
    error = bounds.root_mean_square(one_by_one - exact)
    runs = [Rounding("float32", seed).sum(x, (1,)) for seed in range(16)]
    spread = bounds.root_mean_square(np.array([run - exact for run in runs]))
    assert error < 1.2 * spread and spread < 3 * error


def test_a_product_by_its_variance_has_the_spread_of_one_by_its_terms():
    a, b = normal(30, 200).astype(np.float64), normal(200, 40, seed=1).astype(np.float64)
    spreads = []
    for how in (lambda r: r.matmul(a, b), lambda r: r._matmul_by_variance(a, b, a @ b)):
        spreads.append(bounds.root_mean_square(np.array([how(Rounding("float32", s)) - a @ b for s in range(8)])))
    assert spreads[1] == pytest.approx(spreads[0], rel=0.25)


def test_the_same_number_added_many_times_drifts():
    x = np.full(20000, f32(0.1), dtype=np.float64)
    one_by_one = functools.reduce(np.add, x.astype(f32))
    runs = [np.array(Rounding("float32", s).sum(x)) for s in range(16)]
    limit = bounds.bound(np.array(x.sum()), runs, "float32")
    # Were directions drawn anew for every addition, the bound would be a hundredth of this.
    assert abs(one_by_one - x.sum()) < limit and limit > 0.1


def test_sizes_are_small_odd_and_around_powers_of_two():
    drawn = list(sizes.draws({"n": 67, "d": 40}, 12, 0))
    assert drawn[-1] == {"n": 67, "d": 40}
    assert {1, 2, 3} <= {d["n"] for d in drawn} and {1, 2, 3} <= {d["d"] for d in drawn}
    assert sum(any(abs(d["n"] - 2**p) == 1 for p in range(3, 8)) for d in drawn) >= 4
    assert {"n": 0, "d": 3} in list(sizes.zeros({"n": 67, "d": 40}))


# PyTorch.


def test_modules_of_pytorch_pass():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    report = verify.torch(model, torch.randn(6, 5))
    assert report.passed, report.text
    assert {"input 0", "0.weight", "2.bias"} <= {row["tensor"] for row in report.rows}
    images = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.nn.BatchNorm2d(4), torch.nn.SiLU())
    before = images[1].running_mean.clone()
    report = verify.torch(images, torch.randn(2, 3, 7, 6))
    assert report.passed, report.text
    assert torch.equal(images[1].running_mean, before)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_functions_pass_in_every_type_and_at_every_size(kind):
    def example(n=33, d=17):
        return torch.randn(n, d, dtype=kind), torch.randn(d, dtype=kind)

    report = verify.torch(lambda x, w: torch.softmax(x, -1) * w, example, draws=5)
    assert not failed(report), report.text
    if kind == torch.float32:
        assert report.passed, report.text


class Wrong(torch.autograd.Function):
    """x·w with a gradient that the test chooses."""

    how = staticmethod(lambda x, w, d: (d * w, (d * x).sum(0)))

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, d):
        x, w = ctx.saved_tensors
        return Wrong.how(x, w, d)


def products(n=9, d=17):
    return torch.randn(n, d), torch.randn(d)


def with_gradient(how, **options):
    class Chosen(Wrong):
        @staticmethod
        def backward(ctx, d):
            return how(*ctx.saved_tensors, d)

    return verify.torch(Chosen.apply, products, name="product", **options)


def test_the_right_gradient_passes():
    report = with_gradient(lambda x, w, d: (d * w, (d * x).sum(0)))
    assert report.passed, report.text


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda x, w, d: (-d * w, (d * x).sum(0)), "another sign"),
        (lambda x, w, d: (d * w, (d * x).mean(0)), "scaled by 1/n"),
        (lambda x, w, d: (d * w, (d * x).sum(0).flip(0)), "reversed"),
        (lambda x, w, d: (d * w, torch.zeros_like(w)), "nothing was computed"),
        (lambda x, w, d: (d, (d * x).sum(0)), ""),
    ],
)
def test_a_wrong_gradient_is_found_and_named(how, words):
    report = with_gradient(how)
    rows = failed(report)
    assert rows and rows[0]["link"] == "1 differences", report.text
    assert any(words in row["likeness"] for row in rows), report.text


def test_what_differs_in_memory_alone_is_found():
    def contiguous_alone(x, w, d):
        count = min(d.untyped_storage().nbytes() // 4 - d.storage_offset(), d.numel())
        flat = torch.as_strided(d, (count,), (1,)).repeat(d.numel() // max(count, 1) + 1)[: d.numel()]
        d = flat.reshape(d.shape) if d.dtype == torch.float32 else d
        return d * w, (d * x).sum(0)

    notes = {row["note"] for row in failed(with_gradient(contiguous_alone, draws=1))}
    assert any("strided" in note for note in notes) and any("transposed" in note for note in notes)


def test_memory_that_is_never_written_is_found():
    def unwritten(x, w, d):
        d_w = torch.empty_like(w)
        d_w[:-1] = (d * x).sum(0)[:-1]
        return d * w, d_w

    assert failed(with_gradient(unwritten, draws=1))


def test_state_that_stays_from_the_call_before_is_found():
    kept = {}

    def stale(x, w, d):
        told = kept.get(d.shape, (d * w, (d * x).sum(0)))
        kept[d.shape] = d * w, (d * x).sum(0)
        return told

    rows = failed(with_gradient(stale, draws=1))
    assert any("stale" in row["note"] or row["link"] != "5 bits" for row in rows)


def test_what_is_not_deterministic_is_named_and_may_be_allowed():
    def noisy(x, w, d):
        # Less than rounding explains.
        off = np.random.default_rng().integers(0, 2) if d.dtype == torch.float32 else 0
        return d * w, (d * x).sum(0) * (1 + 2**-23 * off)

    assert any("not deterministic" in row["note"] for row in failed(with_gradient(noisy, draws=3)))
    assert not failed(with_gradient(noisy, draws=3, deterministic=False))


def test_inputs_that_are_changed_are_found():
    def in_place(x, w, d):
        told = d * w, (d * x).sum(0)
        d.zero_()
        return told

    assert any("changed by the call" in row["note"] for row in failed(with_gradient(in_place, draws=1)))


def single(how):
    """A kernel in float32 alone, out of PyTorch's sight."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach().numpy().astype(f32)
            return torch.from_numpy(np.tanh(ctx.x))

        @staticmethod
        def backward(ctx, d):
            return torch.from_numpy(how(ctx.x, d.numpy().astype(f32)))

    return Kernel.apply


def test_a_kernel_in_float32_alone_is_held_to_its_reference():
    right = single(lambda x, d: d * (1 - np.tanh(x) ** 2))
    assert verify.torch(right, lambda n=65: torch.randn(n), reference=torch.tanh).passed
    wrong = single(lambda x, d: d * (1 - np.tanh(x) ** 2) * f32(1 + 1e-5))
    rows = failed(verify.torch(wrong, lambda n=65: torch.randn(n), reference=torch.tanh))
    assert rows and rows[0]["link"] == "3 kernel"


def test_without_a_reference_it_is_held_to_rough_differences():
    right = verify.torch(single(lambda x, d: d * (1 - np.tanh(x) ** 2)), torch.randn(9))
    assert not failed(right), right.text
    assert failed(verify.torch(single(lambda x, d: d * (1 - np.tanh(x) ** 2) * f32(1.2)), torch.randn(9)))


def test_compiled_code_that_runs_in_float64_says_what_it_needs():
    class Outside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach().numpy()
            return torch.from_numpy(np.tanh(ctx.x))

        @staticmethod
        def backward(ctx, d):
            return torch.from_numpy(d.numpy() * (1 - np.tanh(ctx.x) ** 2))

    report = verify.torch(Outside.apply, torch.randn(9))
    assert not failed(report), report.text
    assert any("give reference=" in row["note"] for row in report.problems)


def test_some_tensors_alone_are_checked_where_they_ask_for_it():
    w = torch.randn(5, requires_grad=True)
    report = verify.torch(lambda x, w: x * w, (torch.randn(3, 5), w))
    assert report.passed and {row["tensor"] for row in report.rows} <= {"input 1", "output", "all"}


# JAX.


def test_functions_of_jax_pass_and_wrong_ones_are_found():
    def example(n=17, d=9):
        return tuple(jnp.asarray(normal(n, d, seed=s)) for s in range(3))

    report = verify.jax(lambda q, k, v: jax.nn.softmax(q @ k.T / 4) @ v, example, draws=3)
    assert report.passed, report.text

    def recurrent(w, x):
        return jax.lax.scan(lambda h, x: (jnp.tanh(w @ h + x), h), jnp.zeros(4, x.dtype), x)[1]

    report = verify.jax(recurrent, (jnp.asarray(normal(4, 4)), jnp.asarray(normal(6, 4))))
    assert report.passed, report.text

    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, d: (x * d,))
    rows = failed(verify.jax(square, jnp.asarray(normal(9))))
    assert rows and rows[0]["link"] == "1 differences" and "scaled by 0.5" in rows[0]["likeness"]


def test_a_reference_in_jax_predicts_the_bound_of_a_kernel_in_float32():
    @jax.custom_vjp
    def kernel(x):
        return jnp.tanh(x.astype("float32"))

    for factor, passes in [(1.0, True), (1 + 1e-5, False)]:
        kernel.defvjp(
            lambda x: (kernel(x), x.astype("float32")),
            lambda x, d, factor=factor: (d * (1 - jnp.tanh(x) ** 2) * jnp.float32(factor),),
        )
        report = verify.jax(kernel, jnp.asarray(normal(65)), reference=jnp.tanh)
        assert bool(failed(report)) != passes, report.text


# Pairs of functions.


def layer_norm(x, w):
    m = x.mean(-1, keepdims=True)
    return (x - m) / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * w


def layer_norm_backward(x, w, d_y, term=1):
    m = x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)
    h, g = (x - m) * r, d_y * w
    d_x = r * (g - term * g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
    return d_x, (d_y * h).sum(0)


def rows_and_weights(n=33, d=17):
    return normal(n, d), normal(d, seed=1)


@pytest.mark.filterwarnings("ignore:.*empty slice|.*encountered in:RuntimeWarning")
def test_pairs_in_numpy_are_their_own_reference():
    report = verify.numpy(layer_norm, layer_norm_backward, rows_and_weights)
    assert report.passed, report.text
    wrong = verify.numpy(layer_norm, lambda x, w, d: layer_norm_backward(x, w, d, term=0), rows_and_weights)
    first = failed(wrong)[0]
    assert (first["tensor"], first["link"]) == ("input 0", "1 differences")
    assert "missing term" in first["likeness"] and "axis 1" in first["likeness"]


@pytest.mark.parametrize(
    "reference",
    [
        (lambda x, w: x @ w, lambda x, w, d: (d @ w.T, x.T @ d)),
        lambda x, w: x @ w,
    ],
    ids=["a pair", "a function of PyTorch"],
)
def test_pairs_in_one_type_alone_have_references_of_any_kind(reference):
    def forward(x, w):
        return x.astype(f32) @ w.astype(f32)

    def backward(x, w, d, rows=None):
        x, w, d = (np.asarray(a, f32) for a in (x, w, d))
        return d @ w.T, x[:rows].T @ d[:rows]

    def example(n=65, k=5):
        return normal(n, k), normal(k, 7, seed=1)

    assert verify.function(forward, backward, example, reference=reference).passed
    wrong = verify.function(forward, lambda x, w, d: backward(x, w, d, 64), example, reference=reference)
    assert failed(wrong) and all("n=65" in row["model"] or "n=67" in row["model"] for row in failed(wrong))


def test_bad_arguments_say_what_is_needed():
    with pytest.raises(TypeError, match="largest n is 'many'"):
        verify.torch(torch.tanh, lambda n="many": torch.randn(3))
    with pytest.raises(ValueError, match="needs a tensor of floating numbers"):
        verify.torch(torch.tanh, torch.arange(3))
    with pytest.raises(ValueError, match="draws: got 0"):
        verify.torch(torch.tanh, torch.randn(3), draws=0)
    with pytest.raises(TypeError, match="verify.torch"):
        verify(torch.nn.Linear(2, 2), np.zeros((2, 2)), np.zeros((2, 2)))


# Likenesses.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: -g, "another sign"),
        (lambda g: g / 3, "scaled by 1/batch"),
        (lambda g: g * 2, "doubled"),
        (lambda g: g * 0.77, "scaled by 0.77"),
        (lambda g: np.ascontiguousarray(g.T).reshape(g.shape), "transposed"),
        (lambda g: g[::-1], "reversed along axis 0"),
        (lambda g: np.roll(g, 1, 1), "shifted by 1 along axis 1"),
        (lambda g: g + g.mean(1, keepdims=True), "missing term that is the same along axis 1"),
        (lambda g: g + 0.3 * OTHER, "off by 0.3 × x"),
        (lambda g: np.where(np.arange(7) >= 6, 0, g), "tail: wrong from index 6 of 7 on along axis 1, zeros there"),
        (lambda g: np.where(np.arange(7) >= 6, np.nan, g), "never written"),
        (lambda g: g + EARLIER, "stale memory: added to the gradient of the call before"),
        (lambda g: EARLIER, "the gradient of the call before"),
        (lambda g: g.astype(np.float16).astype(float), "narrower type"),
    ],
)
def test_mistakes_are_recognised(change, words):
    right = normal(5, 7).astype(float)
    got = np.array(change(right))
    told = likeness(
        got, right, np.full(right.shape, 1e-7), {"batch": 3}, {"x": OTHER}, {"the gradient of the call before": EARLIER}
    )
    assert words in told, told


OTHER, EARLIER = normal(5, 7, seed=1).astype(float), normal(5, 7, seed=2).astype(float)

# pytest's fixture.

PROGRAM = """
import torch
import numpy as np


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, d):
        x, w = ctx.saved_tensors
        return d * w, (d * x).mean(0)


def test_wrong(check_gradients):
    check_gradients(Product.apply, lambda n, d: (torch.randn(n, d), torch.randn(d)), name="product")


def test_right(check_gradients):
    check_gradients(torch.nn.Linear(3, 2), torch.randn(4, 3))


def test_pair(check_gradients):
    check_gradients(np.sin, lambda x, d: d * np.cos(x), np.linspace(-1, 1, 7))
"""


def test_a_failing_test_names_tensor_element_link_and_likeness(tmp_path):
    (tmp_path / "test_mine.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "1 failed, 2 passed" in told.stdout, told.stdout + told.stderr
    line = next(line for line in told.stdout.splitlines() if line.startswith("product"))
    assert "input 1, link 1 differences: element [" in line and "scaled by 1/n = 1/5" in line, line


# Mistakes as other projects had them.

CHECKERS = pathlib.Path(os.environ.get("RETROGRAD_SOURCE", "")) / "crates/retrograd-python/checkers"


def cases():
    sys.path.insert(0, str(CHECKERS))
    import cases as module

    return module.CASES


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", range(20))
def test_twenty_mistakes_are_found_and_the_right_kernels_pass(number):
    case = cases()[number]
    import compare

    assert compare.ours(case, wrong=True), case.name
    assert not compare.ours(case, wrong=False), case.name
    assert inspect.signature(case.example).parameters.keys() == case.usual.keys()
