"""What `bench/side-by-side` writes of its figures: the page, the README's table and the picture."""

import math
import os
import platform
import statistics
from pathlib import Path

from peers.modes import NAMES
from sides import FAR, FIRST_AGREES, HOPELESS, HOPELESS_PEER, LATER_AGREES, ROOT, STOLEN, TAKEN

COLOURS = {
    "torch": "#d1603d",
    "pyg": "#c98a1b",
    "jax": "#3f8f6b",
    "onnx": "#8a8f2b",
    "burn": "#7a5bb5",
    "candle": "#3b6ea5",
}
BEGIN, END = "<!-- side by side: written by bench/side-by-side -->", "<!-- side by side: end -->"


def machine(threads):
    model = platform.processor() or platform.machine()
    cores = os.cpu_count()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    system = f"{platform.system()} {platform.machine()}"
    return f"{model}, {cores} cores, {threads} used; {system}"


def unit(ns):
    return next(((u, size) for u, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if ns >= size), ("ns", 1.0))


def digits(value, spread, most=3):
    """A number with the digits that half of its spread allows, at least one and three at most."""
    if value == 0:
        return "0"
    first = math.floor(math.log10(abs(value)))
    last = first - most + 1
    if spread > 0:
        last = min(first, max(last, math.floor(math.log10(spread))))
    rounded = round(value, -last)
    return f"{rounded:.{max(0, -last)}f}"


def time(ns):
    """A time whose spread isn't known."""
    name, size = unit(ns)
    return f"{digits(ns / size, 0)} {name}"


def with_spread(times):
    """The median, and half of what lies between the least and the most."""
    name, size = unit(statistics.median(times))
    middle = statistics.median(times) / size
    if len(times) == 1:
        return f"{digits(middle, 0, 2)} {name}"
    half = (max(times) - min(times)) / 2 / size
    text = digits(middle, half)
    # Not below the last digit that is shown.
    last = 10.0 ** -len(text.partition(".")[2])
    return f"{text} ± {digits(max(half, last), 0, 1)} {name}"


def factor(theirs, ours):
    """How many times as long as ours theirs takes, with the digits that the spread of both allows."""
    value = statistics.median(theirs) / statistics.median(ours)
    half = lambda times: (max(times) - min(times)) / 2 / statistics.median(times)
    text = digits(value, value * math.hypot(half(theirs), half(ours)), 2)
    return f"{text} ×" if value >= 1 else f"**{text} ×, we lose**"


def memory(count):
    if not count:
        return "–"
    return f"{count / 1e9:.2g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB" if count < 1e8 else f"{count / 1e6:.0f} MB"


def compiled(mode):
    seconds = mode.get("compile_s")
    return "–" if seconds is None else f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def worked(result):
    return [m for m in result["modes"] if "failed" not in m]


def fastest(result, peer=None):
    """The fastest mode, of all peers or of one, of those that were in the most rounds; none where none worked."""
    modes = [m for m in worked(result) if peer in (None, m["peer"])]
    most = max((len(m["all_ns"]) for m in modes), default=0)
    return min((m for m in modes if len(m["all_ns"]) == most), key=lambda m: m["step_ns"], default=None)


def peers_of(results):
    return [p for p in NAMES if any(m["peer"] == p for r in results for m in r["modes"])]


def label(result):
    return f"{result['about']} (`{result['workload']}`)"


def main_table(results):
    lines = [
        "| workload | ours | GFLOP/s, of peak | the fastest peer | theirs | theirs / ours | compilation | memory: ours | theirs, imported |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        ours, best = result["ours"], fastest(result)
        share = "–"
        if ours["gflops"]:
            share = f"{ours['gflops']:.0f}, {100 * ours['gflops'] / result['measured']['peak_gflops']:.0f} %"
        cells = [label(result), with_spread(ours["all_ns"]), share]
        if best:
            cells += [f"{NAMES[best['peer']]}, {best['mode']}", with_spread(best["all_ns"])]
            cells += [factor(best["all_ns"], ours["all_ns"]), compiled(best), memory(ours["peak_rss_bytes"])]
            cells += [f"{memory(best['peak_rss_bytes'])}, {memory(best.get('imported_rss_bytes'))}"]
        else:
            cells += ["none worked", "", "", "", memory(ours["peak_rss_bytes"]), ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mode_table(results):
    lines = [
        "| workload | peer | mode | a step | theirs / ours | rounds | compilation | memory |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        ours = result["ours"]["all_ns"]
        name = f"`{result['workload']}`"
        for mode in result["modes"]:
            cells = [name, NAMES[mode["peer"]], mode["mode"]]
            if "failed" in mode:
                reason = mode["failed"].replace("|", "¦").replace("\n", " ")
                cells += [reason if reason.startswith("not measured") else f"failed: {reason}", "", "", "", ""]
            else:
                best = mode is fastest(result, mode["peer"])
                cells[2] = f"**{mode['mode']}**" if best else mode["mode"]
                cells += [with_spread(mode["all_ns"]), factor(mode["all_ns"], ours), str(len(mode["all_ns"]))]
                cells += [compiled(mode), memory(mode["peak_rss_bytes"])]
            lines.append("| " + " | ".join(cells) + " |")
            name = ""
    return "\n".join(lines)


def round_table(results):
    lines = [
        "| workload | measured | load | a cache line to the other core | others' share of the cores | disturbed, repeated |",
        "|---|---|--:|--:|--:|--:|",
    ]

    def span(values, form, name=""):
        if None in values:
            return "–"
        low, high = form(min(values)), form(max(values))
        return (low if low == high else f"{low}–{high}") + name

    for result in results:
        rounds, measured = result["rounds"], result["measured"]
        of = lambda key: [r[key] for r in rounds]
        bad = sum(r["disturbed"] for r in rounds)
        cells = [f"`{result['workload']}`", f"{measured['date']}, {measured['retrograd']}"]
        cells += [span(of("load"), lambda v: f"{v:.1f}"), span(of("latency_ns"), lambda v: f"{v:.0f}", " ns")]
        cells += [span(of("others"), lambda v: f"{100 * v:.0f}", " %"), f"{bad} of {len(rounds)}, {result['repeated']}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def readme_table(results):
    """How many times as long as ours the fastest mode of the fastest peer takes, and which it is."""
    lines = ["| | ours | the fastest peer | theirs | theirs / ours |", "|---|--:|---|--:|--:|"]
    for result in results:
        best = fastest(result)
        if best:
            ours = result["ours"]["all_ns"]
            cells = [result["about"], with_spread(ours), f"{NAMES[best['peer']]}, {best['mode']}"]
            cells += [with_spread(best["all_ns"]), factor(best["all_ns"], ours)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tally(results):
    """How often the fastest peer takes longer than we do, and where it doesn't."""
    compared = [r for r in results if fastest(r)]
    ahead = [r for r in compared if fastest(r)["step_ns"] >= r["ours"]["step_ns"]]
    text = f"ahead of the fastest peer in {len(ahead)} of {len(compared)}"
    behind = [f"`{r['workload']}`" for r in compared if r not in ahead]
    return text + (f", behind in {', '.join(behind)}" if behind else "")


def meanwhile(results):
    """The load of the machine, and at which priority all was timed beside it."""
    loads = [r["load"] for result in results for r in result["rounds"]]
    priority = "real-time" if all(r["measured"]["realtime"] for r in results) else "usual"
    return f"load average {min(loads):.0f} to {max(loads):.0f}, timed at {priority} priority"


def update_readme(results):
    """Puts the table between its two marks, where the README has them."""
    path = ROOT / "README.md"
    text = path.read_text()
    if BEGIN not in text or END not in text:
        return
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    where = ", ".join(dict.fromkeys(r["measured"]["machine"] for r in results))
    where += f"; {meanwhile(results)}"
    path.write_text(f"{before}{BEGIN}\n{readme_table(results)}\n\nOn {where}; {tally(results)}.\n{END}{after}")


def svg(results):
    """How many times as long as ours a step takes, on a logarithmic scale: every peer's fastest mode."""
    row, left, right, top = 26, 270, 40, 64
    width, height = 900, top + row * len(results) + 46
    found = [(r, [fastest(r, p) for p in NAMES if fastest(r, p)]) for r in results]
    ratios = [m["step_ns"] / r["ours"]["step_ns"] for r, modes in found for m in modes]
    low = min([0.5] + [0.9 * v for v in ratios])
    high = max([2.0] + [1.2 * v for v in ratios])
    x = lambda v: left + (width - left - right) * math.log(v / low) / math.log(high / low)
    parts = []
    ticks = [m * 10**e for e in range(-2, 5) for m in (1, 2, 5) if low <= m * 10**e <= high]
    if len(ticks) > 9:
        ticks = [t for t in ticks if math.log10(t).is_integer() or t in (2, 5)]
    for tick in ticks:
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{x(tick):.1f} {top - 8} V{height - 36}"/>')
        parts.append(f'<text class="s" x="{x(tick):.1f}" y="{height - 18}">{tick:g}×</text>')
    for i, (result, modes) in enumerate(found):
        y = top + row * i + row / 2
        parts.append(f'<text class="l" x="{left - 14}" y="{y + 4:.1f}">{result["workload"]}</text>')
        for mode in modes:
            value = mode["step_ns"] / result["ours"]["step_ns"]
            title = f"{NAMES[mode['peer']]}, {mode['mode']}: {with_spread(mode['all_ns'])}, ours {with_spread(result['ours']['all_ns'])}"
            parts.append(
                f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="5.5" fill="{COLOURS[mode["peer"]]}"><title>{title}</title></circle>'
            )
    at = left
    for peer in peers_of(results):
        parts.append(f'<circle cx="{at}" cy="24" r="5.5" fill="{COLOURS[peer]}"/>')
        parts.append(f'<text class="k" x="{at + 11}" y="28.5">{NAMES[peer]}</text>')
        at += 30 + 8 * len(NAMES[peer])
    parts.append('<text class="k" x="14" y="28.5">time of a step, ours = 1</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="Times of steps relative to retrograd's">
<style>
text {{ font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; fill: #1f2d3d }}
.l {{ text-anchor: end }} .s {{ text-anchor: middle; fill: #55636f }}
.bg {{ fill: #ffffff }} .grid {{ stroke: #dde1e5 }} .one {{ stroke: #1f2d3d; stroke-width: 1.5 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .s {{ fill: #a8b3bd }} .bg {{ fill: #0d1117 }} .grid {{ stroke: #2b3138 }} .one {{ stroke: #e6edf3 }}
}}
</style>
<rect class="bg" width="{width}" height="{height}" rx="8"/>
{chr(10).join(parts)}
</svg>
"""


def versions(results):
    found = {}
    for mode in (m for r in results for m in worked(r)):
        found.setdefault(mode["peer"], []).append(mode.get("version", ""))
    return ", ".join(f"{NAMES[p]} {' and '.join(dict.fromkeys(found[p]))}" for p in NAMES if p in found)


def page(results, missing, picture):
    """The page of all results; `missing` are workloads that nobody measured."""
    measured = [r["measured"] for r in results]
    differs = max((m["loss_differs_by"] for r in results for m in worked(r)), default=0.0)
    seconds = sum(m["seconds"] for m in measured)
    image = f"\n![Times of the peers as multiples of ours]({picture})\n" if picture else ""
    peaks = [m["peak_gflops"] for m in measured]
    peak = f"{min(peaks):.0f}" if f"{min(peaks):.0f}" == f"{max(peaks):.0f}" else f"{min(peaks):.0f} to {max(peaks):.0f}"
    left_out = f"\n- Not measured yet with every mode: {', '.join(f'`{m}`' for m in missing)}" if missing else ""
    return f"""# Side by side

The output of `bench/side-by-side --out docs`: the time of a training step (forward, loss, backward, optimizer;
an epoch for graphs), and of the inference of one sample, beside every peer in every mode that its users know.
We are {tally(results)}.

- Machine: {", ".join(dict.fromkeys(m["machine"] for m in measured))}; {meanwhile(results)}
- Peak, measured with fused multiply-adds in registers: {peak} GFLOP/s in f32
- {versions(results)}
- It took {seconds / 60:.0f} minutes{left_out}
{image}
{main_table(results)}

Times are medians over rounds in which all sides have their turns, ± half of what lies between the least and the
most; no figure has more digits than that allows. Above 1 × the peer takes longer. Compilation is what the first step
takes beyond the third, nothing cached; for ONNX Runtime the loading of the model. Memory is the most that the process
had (the peers' from their third step on, so without what compilation alone needs; ours as a whole), then what a
process has that imported the libraries and nothing else.

Everything is f32 on as many threads as we have. All start from the weights and the batch that `retrograd bench
NAME --dump FILE` writes, and a mode counts only if its losses agree with ours: to {FIRST_AGREES:g} before the first step and to
{LATER_AGREES:g} before the second and the third. Graphs, which drop at random, are compared without dropout: the loss of the
initial weights with ours, three steps with those of the first mode; automata in JAX by a first loss in f64, too. The
largest difference was {differs:.0e}.

## Every mode

The fastest of each peer is bold. A mode that takes {HOPELESS:g} × as long as the fastest of its peer in a trial, or
{HOPELESS_PEER:g} × as long as another peer, is not measured further: one round.

{mode_table(results)}

Adam is fused where nothing else is said, and what is compiled is forward and loss, and by that their backward pass
(of automata one step, since all of them in one graph take minutes). KANs are computed as efficient-kan does it.
"CSR" are PyTorch's sparse matrices, "index_add" sums over lists of edges and of features that are not zero; PyTorch
Geometric's networks are those of its examples. JAX runs one jitted function a step, its buffers donated, and sums over
edges by `segment_sum`. "Planes" are automata with channels first. "Frozen" weights are constants for the compiler.
burn runs on its CPU backend flex, candle on its own products of matrices (no MKL), both built for this very
processor; CubeCL's backend for CPUs is not compared, nor are graphs, automata and the U-Net in either.

## The machine meanwhile

A round is disturbed, and is repeated (as many again at most), where a cache line takes {FAR:g} × as long to the other
core as in the best round, where the hypervisor took {100 * STOLEN:g} % of the cores or, at usual priority, other processes
{100 * TAKEN:g} %.

{round_table(results)}
"""
