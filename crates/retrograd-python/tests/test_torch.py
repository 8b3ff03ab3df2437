"""Modules for PyTorch, against the same modules in plain PyTorch."""

import copy
import importlib.util
import io
import os
import pathlib

import numpy as np
import pytest
import retrograd
import torch
from torch import nn

import retrograd.torch as ours

ROOT = pathlib.Path(os.environ["RETROGRAD_SOURCE"])
CONV = dict(kernel_size=3, stride=2, padding=1, dilation=1, groups=2)
LOGIC = dict(channels=2, kernels=2, perception=[9, 8, 4, 2, 1], update=[6, 4, 2], steps=2)
EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 3, 0]])


def plain(folder):
    """The counterpart of a layer in plain PyTorch."""
    path = ROOT / "crates" / "retrograd" / "src" / "layer" / folder / "torch.py"
    spec = importlib.util.spec_from_file_location(f"plain_{folder}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(module, other, x, *more, wide=False):
    """Outputs and all gradients; in float64 both compute the same to rounding."""
    other.load_state_dict(module.state_dict(), strict=False)
    kind = torch.float64 if wide else torch.float32
    module, other = module.to(kind), other.to(kind)
    module.zero_grad(), other.zero_grad()
    x = x.to(kind)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [module(inputs[0], *more), other(inputs[1], *more)]
    weight = torch.linspace(-1, 1, outputs[0].numel(), dtype=kind).reshape(outputs[0].shape)
    for y in outputs:
        (y * weight).sum().backward()
    pairs = [(outputs[0], outputs[1]), (inputs[0].grad, inputs[1].grad)]
    named = dict(other.named_parameters())
    for name, parameter in module.named_parameters():
        pairs.append((parameter.grad, named[name].grad))
    # Relative to the largest element: in f64 what sums of some hundred terms leave, in f32 the same
    # in its own unit.
    unit = 1e-10 if wide else 1e-10 * 2.0**29
    for one, two in pairs:
        scale = two.abs().max().clamp_min(1e-3)
        assert (one - two).abs().max() <= unit * scale, ((one - two).abs().max(), scale)


class PlainLogicCA(nn.Module):
    """The automaton in plain PyTorch: the sixteen gates one by one, neighbours by shifted copies."""

    def __init__(self, automaton):
        super().__init__()
        self.spec = automaton.spec
        self.wires = {k: v.long() for k, v in automaton.state_dict().items() if k.startswith("wires")}
        for name, parameter in automaton.named_parameters():
            part, layer, leaf = name.split(".")
            if part not in self._modules:
                self.add_module(part, nn.ModuleList())
            self._modules[part].append(nn.Module())
            self._modules[part][int(layer)].register_parameter(leaf, nn.Parameter(parameter.detach().clone()))

    @staticmethod
    def gates(logits, a, b):
        """Mixtures of all gates; a and b are (…, gates), logits (gates, 16)."""
        ab, one = a * b, torch.ones_like(a)
        all_sixteen = [
            0 * a, ab, a - ab, a, b - ab, b, a + b - 2 * ab, a + b - ab,
            one - (a + b - ab), one - (a + b - 2 * ab), one - b, one - b + ab,
            one - a, one - a + ab, one - ab, one,
        ]
        return (torch.stack(all_sixteen, -1) * logits.softmax(-1)).sum(-1)

    def around(self, state):
        """(grids, rows, columns, channels, 9): the cells around each, row by row."""
        periodic = self.spec.get("boundary", "periodic") == "periodic"
        wide = nn.functional.pad(
            state.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="circular" if periodic else "constant"
        )
        height, width = state.shape[1:3]
        moved = [wide[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)]
        return torch.stack(moved, -1).permute(0, 2, 3, 1, 4)

    def step(self, state):
        around, kernels = self.around(state), []
        for k in range(self.spec["kernels"]):
            values = around
            for l, layer in enumerate(self.perception):
                wires = self.wires[f"wires.perception.{l}"]
                wires = wires[k] if wires.dim() == 3 else wires
                values = self.gates(layer.logits[k], values[..., wires[0]], values[..., wires[1]])
            kernels.append(values)
        seen = torch.stack(kernels, -1).flatten(-3)
        values = torch.cat([state, seen], -1)
        for l, layer in enumerate(self.update):
            wires = self.wires[f"wires.update.{l}"]
            values = self.gates(layer.logits, values[..., wires[0]], values[..., wires[1]])
        return values

    def forward(self, state, fire=None):
        for t in range(self.spec["steps"]):
            new = self.step(state)
            state = new if fire is None else torch.where(fire[t][None, :, :, None], new, state)
        return state


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("per_kernel", [False, True])
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_automata_are_those_of_plain_pytorch(wide, per_kernel, boundary, asynchronous):
    torch.manual_seed(0)
    automaton = ours.LogicCA(**LOGIC, boundary=boundary, per_kernel_wiring=per_kernel)
    with torch.no_grad():
        for parameter in automaton.parameters():
            parameter.copy_(torch.randn_like(parameter))
    state = torch.rand(3, 5, 7, 2)
    more = [torch.rand(LOGIC["steps"], 5, 7) < 0.6] if asynchronous else []
    compare(automaton, PlainLogicCA(automaton), state, *more, wide=wide)


@pytest.mark.parametrize("wide", [False, True])
def test_kan_layers_are_those_of_plain_pytorch(wide):
    x = torch.rand(11, 3, generator=torch.manual_seed(0)) * 2 - 1
    layer = ours.KANLinear(3, 4, grid=4, degree=2, bias=True)
    options = {"out": 4, "grid": 4, "degree": 2, "bias": True}
    compare(layer, plain("kan").make(options, [3]), x, wide=wide)
    kan = ours.KAN([3, 5, 2])
    other = nn.Sequential(
        plain("kan").make({"out": 5}, [3]), plain("kan").make({"out": 2}, [5])
    )
    compare(kan, other, x, wide=wide)


@pytest.mark.parametrize("wide", [False, True])
def test_convolutions_are_those_of_pytorch(wide):
    x = torch.rand(3, 4, 9, 7, generator=torch.manual_seed(0))
    compare(ours.Conv2d(4, 6, **CONV), nn.Conv2d(4, 6, **CONV), x, wide=wide)


@pytest.mark.parametrize(
    "module",
    [ours.GCNConv, ours.SAGEConv, ours.GINConv, ours.GATConv, ours.GATv2Conv],
    ids=lambda m: m.__name__,
)
def test_graph_layers_pass_gradcheck_and_the_verifier(module):
    x = torch.rand(5, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    layer = module(3, 4, seed=0)
    report = retrograd.verify(layer, x.numpy(), np.ones((5, 4)), graph=EDGES, quick=True)
    assert report.passed, report.text
    wide = layer.double()
    call = lambda x, *params: wide(x, EDGES)
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), *wide.parameters()))


def test_edge_weights_and_features_have_gradients():
    x = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(7, dtype=torch.float64, requires_grad=True)
    gcn = ours.GCNConv(3, 2, edge_weight=True, seed=0).double()
    assert torch.autograd.gradcheck(lambda x, w: gcn(x, EDGES, w), (x, weight))
    attr = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
    gine = ours.GINEConv(3, 2, edge_dim=2, seed=1).double()
    assert torch.autograd.gradcheck(lambda x, a: gine(x, EDGES, a), (x, attr))


def test_graph_layers_are_those_of_pytorch_geometric():
    import torch_geometric.nn as geometric

    x = torch.rand(5, 3, generator=torch.manual_seed(0))
    attr = torch.rand(7, 2)
    mlp = lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
    pairs = [
        (ours.GINConv(3, 4), geometric.GINConv(mlp(), train_eps=True)),
        (ours.GINEConv(3, 4, edge_dim=2), geometric.GINEConv(mlp(), train_eps=True, edge_dim=2)),
        (ours.GCNConv(3, 4), geometric.GCNConv(3, 4)),
        (ours.SAGEConv(3, 4), geometric.SAGEConv(3, 4)),
        (ours.GATConv(3, 4, heads=2), geometric.GATConv(3, 4, heads=2)),
        (ours.GATv2Conv(3, 4, heads=2), geometric.GATv2Conv(3, 4, heads=2)),
    ]
    for module, other in pairs:
        assert set(module.state_dict()) == set(other.state_dict()), type(other)
        for wide in (False, True):
            more = [attr.double() if wide else attr] if isinstance(module, ours.GINEConv) else []
            compare(module, other, x, EDGES, *more, wide=wide)


def test_modules_pass_gradcheck_in_the_parameters_too():
    torch.manual_seed(0)
    modules = [
        (ours.KAN([2, 3, 1]), torch.rand(4, 2) * 1.6 - 0.8),
        (ours.Conv2d(2, 3, 3, padding=1), torch.rand(2, 2, 5, 4)),
        (ours.LogicCA(**LOGIC), torch.rand(1, 4, 5, 2) * 0.8 + 0.1),
        (
            ours.Network([2], [{"kind": "dense", "out": 3}, {"kind": "gelu"}, {"kind": "dense", "out": 1}]),
            torch.rand(4, 2),
        ),
    ]
    for module, x in modules:
        module, x = module.double(), x.double().requires_grad_()
        if isinstance(module, ours.LogicCA):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.copy_(torch.rand_like(parameter))

        def call(x, *values):
            for parameter, value in zip(module.parameters(), values):
                assert value is parameter
            return module(x)

        assert torch.autograd.gradcheck(call, (x, *module.parameters())), type(module)


def test_our_verifier_passes_on_modules():
    torch.manual_seed(0)
    kan = ours.KAN([2, 3, 1])
    x = torch.rand(6, 2) * 2 - 1
    assert retrograd.verify(kan, x, torch.ones(6, 1)).passed


def test_parameters_are_read_where_they_are_and_gradients_are_views():
    kan = ours.KAN([3, 5, 2])
    start = kan._flat.data_ptr()
    kan(torch.rand(4, 3)).sum().backward()
    ends = [p.data_ptr() for p in kan.parameters()]
    assert min(ends) == start and kan._flat.data_ptr() == start
    grads = [p.grad for p in kan.parameters()]
    assert len({g.untyped_storage().data_ptr() for g in grads}) == 1
    with torch.no_grad():
        next(kan.parameters()).zero_()
    assert kan._flat.eq(0).any()


def test_states_have_the_names_of_our_files(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    described = {
        "model": {"family": "kan", "sizes": [2, 3, 1]},
        "train": {"epochs": 2, "optimizer": {"kind": "adam", "lr": 0.01}},
    }
    run = retrograd.train(described, x, x[:, 0], out=tmp_path / "run", verify=False)
    kan = ours.KAN([2, 3, 1])
    state = {name: torch.from_numpy(value) for name, value in run.tensors().items()}
    kan.load_state_dict(state)
    expected = run.predict(x)
    assert np.array_equal(kan(torch.from_numpy(x).float()).detach().numpy()[:, 0], expected.astype(np.float32))
    sequence = nn.Sequential(ours.KANLinear(2, 3), ours.KANLinear(3, 1))
    sequence.load_state_dict(state)
    assert torch.equal(sequence(torch.from_numpy(x).float()), kan(torch.from_numpy(x).float()))


def test_copies_pickles_and_files_compute_the_same():
    x = torch.rand(4, 3)
    for module in (ours.KAN([3, 4, 2]), nn.Sequential(ours.KANLinear(3, 4), nn.Tanh(), ours.KANLinear(4, 2))):
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        twin = copy.deepcopy(module)
        assert torch.equal(module(x), loaded(x)) and torch.equal(module(x), twin(x))
        # A copy is one: its steps don't change the other.
        optimizer = torch.optim.SGD(twin.parameters(), lr=1.0)
        before = module(x)
        twin(x).sum().backward()
        optimizer.step()
        assert torch.equal(before, module(x)) and not torch.equal(before, twin(x))


def test_double_backward_is_refused_clearly():
    x = torch.rand(4, 3, requires_grad=True)
    y = ours.KAN([3, 1])(x).sum()
    with pytest.raises(RuntimeError, match="gradient of a gradient"):
        torch.autograd.grad(y, x, create_graph=True)


def test_backward_after_a_change_of_the_parameters_is_refused():
    kan = ours.KAN([3, 1])
    y = kan(torch.rand(4, 3)).sum()
    with torch.no_grad():
        next(kan.parameters()).add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_backward_can_be_repeated_where_the_graph_is_retained():
    kan, x = ours.KAN([3, 4, 2]), torch.rand(6, 3)
    y = kan(x).sum()
    first = torch.autograd.grad(y, list(kan.parameters()), retain_graph=True)
    second = torch.autograd.grad(y, list(kan.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_interleaved_forwards_keep_their_own_tapes():
    kan = ours.KAN([3, 4, 2])
    x = [torch.rand(n, 3) for n in (5, 9, 2)]
    alone = []
    for one in x:
        kan.zero_grad()
        kan(one).sum().backward()
        alone.append([p.grad.clone() for p in kan.parameters()])
    outputs = [kan(one).sum() for one in x]
    for y, expected in reversed(list(zip(outputs, alone))):
        kan.zero_grad()
        y.backward()
        assert all(torch.equal(p.grad, e) for p, e in zip(kan.parameters(), expected))


def test_training_reaches_the_target():
    torch.manual_seed(0)
    kan = ours.KAN([2, 5, 1])
    optimizer = torch.optim.Adam(kan.parameters(), lr=0.03)
    x = torch.rand(256, 2) * 2 - 1
    goal = x[:, :1] * x[:, 1:]
    for _ in range(200):
        optimizer.zero_grad()
        loss = (kan(x) - goal).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3


def test_dropout_obeys_pytorchs_seed_and_eval():
    layers = [{"kind": "dense", "out": 32}, {"kind": "dropout", "p": 0.5}]
    network, x = ours.Network([4], layers), torch.rand(8, 4)
    draw = lambda seed: (torch.manual_seed(seed), network(x))[1]
    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))
    network.eval()
    assert torch.equal(draw(1), draw(2))


def test_batch_norms_statistics_follow_training():
    layers = [{"kind": "conv2d", "out": 3, "kernel": 1, "bias": False}, {"kind": "batch_norm2d"}]
    network = ours.Network([2, 4, 4], layers)
    other = nn.Sequential(nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3))
    other.load_state_dict(network.state_dict(), strict=False)
    x = torch.rand(5, 2, 4, 4)
    for _ in range(3):
        network(x), other(x)
    network.eval(), other.eval()
    assert torch.allclose(network(x), other(x), atol=1e-5)
    names = set(network.state_dict())
    assert {"1.running_mean", "1.running_var"} <= names


def test_compiled_models_with_our_modules_run():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), ours.KANLinear(3, 2))
    compiled = torch.compile(model, backend="eager")
    x = torch.rand(5, 3)
    assert torch.equal(compiled(x), model(x))
    compiled(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


class Predicted(torch.utils.data.Dataset):
    """Samples that a model of ours makes in a worker."""

    def __init__(self, module):
        self.module = module

    def __len__(self):
        return 64

    def __getitem__(self, i):
        with torch.no_grad():
            return self.module(torch.full((512, 64), i / 64))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_use_our_modules(method):
    module = ours.KAN([64, 64, 8])
    data = Predicted(module)
    expected = torch.stack([data[i] for i in range(64)])
    loader = torch.utils.data.DataLoader(
        data, batch_size=16, num_workers=2, multiprocessing_context=method, timeout=120
    )
    assert torch.equal(torch.cat(list(loader)), expected)


@pytest.mark.parametrize(
    "x, error, words",
    [
        (torch.rand(4, 3).double(), TypeError, "float64"),
        (torch.rand(4, 3).half(), TypeError, "float16"),
        (torch.rand(4, 7), ValueError, r"\[4, 7\]"),
        (torch.full((4, 3), float("nan")), ValueError, "finite"),
        (torch.rand(0, 3), ValueError, "at least one"),
        (torch.rand(4, 3).to_sparse(), TypeError, "sparse"),
        ([[1.0, 2.0, 3.0]], TypeError, "tensor"),
        (torch.zeros(4, 3, device="meta"), TypeError, "CPU"),
    ],
    ids=["double", "half", "shape", "nan", "empty", "sparse", "list", "device"],
)
def test_bad_tensors_are_refused(x, error, words):
    kan = ours.KAN([3, 2])
    with pytest.raises(error, match=words):
        kan(x)
    assert kan(torch.rand(2, 3)).shape == (2, 2)


def test_tensors_in_any_order_are_taken():
    kan = ours.KAN([3, 2])
    x = torch.rand(3, 4).T
    assert not x.is_contiguous() and torch.equal(kan(x), kan(x.contiguous()))
    assert kan(torch.rand(2, 5, 3)).shape == (2, 5, 2) and kan(torch.rand(3)).shape == (2,)


def test_mistyped_layers_and_automata_are_said():
    with pytest.raises(ValueError, match="unknown field `grids`"):
        ours.Network([2], [{"kind": "kan", "out": 1, "grids": 3, "degree": 3}])
    with pytest.raises(ValueError, match=r"update\[0\]"):
        ours.LogicCA(**{**LOGIC, "update": [5, 4, 2]})
    with pytest.raises(ValueError, match="edge 0: got target 9"):
        ours.GCNConv(3, 2)(torch.rand(5, 3), torch.tensor([[0], [9]]))
