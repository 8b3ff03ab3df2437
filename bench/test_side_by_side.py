"""What `bench/side-by-side` decides by itself: which digits are shown, which round is disturbed, which mode counts.
The peers here are small scripts that say what they are told to."""

import json
import os
import sys

import pytest

import growth
import page
import sides
from sides import Machine, Side, check, disturbed, set_up

EXPECTED = {"inference": 2.0, "training": [2.0, 1.5, 1.25]}


@pytest.mark.parametrize(
    "value, spread, shown",
    [(1.2345, 0.0, "1.23"), (1.2345, 0.04, "1.23"), (1.22, 0.35, "1.2"), (1.22, 1.5, "1"), (187.4, 30.0, "190")]
    + [(187.4, 0.1, "187"), (0.0341, 0.0001, "0.0341"), (9.996, 0.02, "10.00")],
)
def test_no_more_digits_than_the_spread_allows(value, spread, shown):
    assert page.digits(value, spread) == shown


def test_times_have_units_and_half_of_their_range():
    assert page.with_spread([0.87e6, 1.22e6, 1.58e6]) == "1.2 ± 0.4 ms"
    assert page.with_spread([1000e3, 1010e3, 1020e3]) == "1.01 ± 0.01 ms"
    assert page.with_spread([42.4e3, 42.4e3]) == "42.4 ± 0.1 µs"
    assert page.with_spread([512.0]) == "510 ns"
    assert page.factor([3e6, 3e6], [2e6, 2e6]) == "1.5 ×"
    assert page.factor([1e6, 1e6], [2e6, 2e6]) == "**0.50 ×, we lose**"


def test_the_fastest_mode_was_in_every_round():
    mode = lambda peer, name, times: {"peer": peer, "mode": name, "step_ns": sorted(times)[len(times) // 2], "all_ns": times}
    modes = [mode("torch", "eager", [5, 6]), mode("torch", "compiled", [1]), mode("jax", "jitted", [4, 4])]
    result = {"rounds": [{}, {}], "modes": modes + [{"peer": "burn", "mode": "flex", "failed": "no"}]}
    assert page.fastest(result)["mode"] == "jitted"
    assert page.fastest(result, "torch")["mode"] == "eager"
    assert page.fastest({"modes": modes[1:2]}, "torch")["mode"] == "compiled"
    assert page.fastest(result, "burn") is None


@pytest.mark.parametrize(
    "changed, realtime, bad",
    [({}, False, False), ({"latency_ns": 340.0}, True, True), ({"latency_ns": None}, True, False)]
    + [({"stolen": 0.1}, True, True), ({"others": 0.3}, True, False), ({"others": 0.3}, False, True)],
)
def test_a_round_is_disturbed_by_distance_theft_and_others(changed, realtime, bad):
    quiet = {"latency_ns": 55.0, "stolen": 0.0, "others": 0.01}
    assert disturbed(quiet | changed, [quiet, quiet | changed], realtime) is bad


def told(**losses):
    return {"version": "1"} | losses


@pytest.mark.parametrize(
    "losses, agrees",
    [
        ({"losses": [2.0, 1.5, 1.25]}, True),
        ({"losses": [2.00001, 1.501, 1.251]}, True),
        ({"losses": [2.0001, 1.5, 1.25]}, False),
        ({"losses": [2.0, 1.51, 1.25]}, False),
        ({"losses": [2.0, float("nan"), 1.25]}, False),
        ({"inference": 2.0, "plain": [2.0, 1.9, 1.8]}, True),
        ({"inference": 2.1, "plain": [2.0, 1.9, 1.8]}, False),
        ({"inference": 2.0, "plain": [2.0, 1.9, 1.7]}, False),
        ({}, False),
    ],
)
def test_a_mode_that_computes_something_else_does_not_count(losses, agrees):
    side = Side(None, "torch", "eager", "mlp-256", "")
    if agrees:
        assert check(side, told(**losses), EXPECTED, [2.0, 1.9, 1.8]) < 1e-3
    else:
        with pytest.raises(RuntimeError):
            check(side, told(**losses), EXPECTED, [2.0, 1.9, 1.8])


SCRIPT = """
import json, sys, time
mode = sys.argv[2]
if mode == "dies":
    raise ValueError("no such operation")
if mode == "hangs":
    time.sleep(60)
print("a library's greeting")
losses = [2.0, 1.5, 1.25] if mode != "wrong" else [2.0, 1.6, 1.25]
print(json.dumps({"losses": losses}), flush=True)
for line in sys.stdin:
    step = {"slow": 3000, "fast": 1000, "far": 4100}.get(mode, 1200)
    print(json.dumps({"step_ns": step, "min_ns": step, "steps": 9, "peak_rss_bytes": 5000}), flush=True)
"""


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """Makes sides of the script in the modes that are asked for."""
    folder = tmp_path / "bench" / "peers"
    folder.mkdir(parents=True)
    (folder / "peers.py").write_text(SCRIPT)
    monkeypatch.setattr(sides, "ROOT", tmp_path)
    monkeypatch.setattr(sides, "SETUP_SECONDS", 5)
    machine = Machine(os.cpu_count() or 1, False, sys.executable)
    made = []

    def make(*modes, peer="torch"):
        made.extend(Side(machine, peer, mode, "mlp-256", "-") for mode in modes)
        return made

    yield make
    for side in made:
        side.end()


def test_modes_that_fail_are_shown_with_their_reason_and_hopeless_ones_end(peers):
    peers("slow", "dies", "wrong", "hangs", "fast", "even")
    peers("slow", peer="pyg")
    all_sides = peers("far", peer="jax")
    running = set_up(all_sides, EXPECTED, 0.0)
    assert [(side.peer, side.mode) for side in running] == [("torch", "fast"), ("torch", "even"), ("pyg", "slow")]
    failed = {side.mode: side.failed for side in all_sides if side.failed}
    assert failed["dies"] == "ValueError: no such operation"
    assert failed["wrong"].startswith("the loss before step 1 is 1.6")
    assert failed["hangs"] == "no answer after 5 s"
    figures = {side.mode: side.figures() for side in all_sides if side.peer == "torch"}
    assert figures["slow"]["all_ns"] == [3000] and figures["wrong"] == {
        "peer": "torch",
        "mode": "wrong",
        "failed": failed["wrong"],
    }


def test_rounds_that_were_disturbed_are_repeated_and_left_out(peers, monkeypatch):
    latencies = iter([340.0, 55.0, 56.0, 340.0, 54.0])
    machine_of = lambda side: side.machine
    all_sides = peers("fast")
    machine = machine_of(all_sides[0])
    monkeypatch.setattr(machine, "latency", lambda: next(latencies))
    monkeypatch.setattr(machine, "bench", lambda workload: {"step_ns": 500, "peak_rss_bytes": 7})
    monkeypatch.setattr(machine, "counters", lambda: (0.0, 0.0))
    figures = sides.measure(machine, "mlp-256", all_sides, EXPECTED, 3, 0.0)
    assert [r["latency_ns"] for r in figures["rounds"]] == [55.0, 56.0, 54.0]
    assert figures["repeated"] == 2
    assert figures["modes"][0]["all_ns"] == [1000] * 3
    assert figures["ours"] == {"step_ns": 500, "all_ns": [500] * 3, "gflops": None, "peak_rss_bytes": 7}
    assert json.dumps(figures)


def test_growth_says_what_grows_faster_than_its_arithmetic():
    grown = {
        "name": "mlp-rows",
        "axis": "rows of a batch",
        "power": 1,
        "sizes": [16, 32, 64],
        "step_ns": [1e6, 2e6, 4.5e6],
        "time_exponent": 1.08,
        "memory_exponent": None,
        "gain": {"size": 64, "threads": 2, "times": 1.8},
        "peer": {"peer": "jax", "mode": "jitted", "sizes": [{"size": 16, "step_ns": 3e6}, {"size": 64, "step_ns": 9e6}]},
    }
    row = growth.table([grown]).splitlines()[-1]
    assert "| 1.08 (!) | – | 1.80 | JAX, jitted | 3.0 to 2.0 |" in row
    assert growth.power(2.04, 2) == "2.04"
    assert growth.section([], "p.svg") == "" and "p.svg" in growth.section([grown], "p.svg")
    picture = growth.svg([grown])
    # Two lines, ours and the peer's, with a mark for each size.
    assert picture.count("<circle") == 5 and picture.count('fill="none"') == 2
