"""How steps grow beside the fastest peer's: `bench/side-by-side --growth`."""

import json
import math
import tempfile
from pathlib import Path

from page import COLOURS, digits, fastest, time
from peers.modes import NAMES
from sides import Side, check, expected_losses, say

# Of what grows the workload whose fastest peer, in its fastest mode, is taken beside it.
ALIKE = {
    "mlp-rows": "mlp-256",
    "mlp-width": "mlp-256",
    "mlp-depth": "mlp-256",
    "kan-rows": "kan-wide-256",
    "kan-width": "kan-wide-256",
    "kan-depth": "kan-wide-256",
    "cnn-side": "cnn-128",
    "unet-side": "unet-256",
    "logic-cells": "logic-checkerboard",
    "logic-steps": "logic-checkerboard",
    "graph-gcn-nodes": "graph-gcn64",
    "graph-gcn-edges": "graph-gcn64",
}

# Of the peer every second size is measured, until a step takes so many seconds.
LONGEST = 2.0


def ours(place, names, threads=None):
    """What `retrograd bench --growth` measures."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "growth.json")
        command = [*place.prefix(), place.retrograd, "bench", "--growth", *names]
        place.run([*command, "--threads", threads or place.threads, "--json", out])
        return json.loads(out.read_text())


def theirs(place, grown, peer, mode, seconds):
    """A peer's times and memory, by size; sizes at which it fails are left out, and said."""
    found = []
    for size in grown["sizes"][::2]:
        with tempfile.TemporaryDirectory() as folder:
            problem = Path(folder, "problem.safetensors")
            place.run([place.retrograd, "bench", "--growth", grown["name"], "--size", size, "--dump", problem])
            side = Side(place, peer, mode, grown["name"], problem)
            try:
                side.start()
                side.differs = check(side, side.told, expected_losses(problem), side.told.get("plain"))
                step, _ = side.time(seconds)
                found.append({"size": size, "step_ns": step, "peak_rss_bytes": side.peak})
            except (RuntimeError, OSError) as problem:
                say(f"  {peer}, {mode}: {size}: failed: {problem}")
                break
            finally:
                side.end()
        if step > 1e9 * LONGEST:
            break
    return found


def measured(place, results, names, seconds):
    """All that grows, each beside the fastest peer of the workload that is alike."""
    grown = []
    for name in names or ALIKE:
        say(f"{name}: ours")
        [figures] = ours(place, [name])
        alike = results.get(ALIKE[name])
        best = alike and fastest(alike)
        if best:
            peer, mode = best["peer"], best["mode"]
            say(f"{name}: {NAMES[peer]}, {mode}")
            figures["peer"] = {"peer": peer, "mode": mode, "sizes": theirs(place, figures, peer, mode, seconds)}
        one = ours(place, [name], 1)[0] if place.threads > 1 else None
        if one:
            shared = [n for n in one["sizes"] if n in figures["sizes"]]
            last = shared[-1]
            of = lambda f: f["step_ns"][f["sizes"].index(last)]
            figures["gain"] = {"size": last, "threads": place.threads, "times": of(one) / of(figures)}
        grown.append(figures)
    return grown


def power(found, allowed):
    """An exponent, and a mark where it is more than the arithmetic's."""
    if found is None:
        return "–"
    return f"{found:.2f}" + (" (!)" if found > allowed + 0.05 else "")


def table(grown):
    lines = [
        "| what grows | from | to | a step at most | arithmetic | time | memory | threads' gain | fastest peer | theirs / ours |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|--:|",
    ]
    for g in grown:
        peer, ratio = "–", "–"
        if g.get("peer") and g["peer"]["sizes"]:
            peer = f"{NAMES[g['peer']['peer']]}, {g['peer']['mode']}"
            of = dict(zip(g["sizes"], g["step_ns"]))
            ratios = [p["step_ns"] / of[p["size"]] for p in g["peer"]["sizes"]]
            ratio = f"{digits(ratios[0], 0, 2)} to {digits(ratios[-1], 0, 2)}"
        gain = f"{g['gain']['times']:.2f}" if "gain" in g else "–"
        lines.append(
            f"| `{g['name']}`: {g['axis']} | {g['sizes'][0]:,} | {g['sizes'][-1]:,} | {time(g['step_ns'][-1])} | {g['power']} | "
            f"{power(g['time_exponent'], g['power'])} | {power(g['memory_exponent'], g['power'])} | {gain} | {peer} | {ratio} |"
        )
    return "\n".join(lines)


def section(grown, picture):
    """The page's part on growth; nothing where nothing was measured."""
    if not grown:
        return ""
    return f"""
## As it grows

`bench/side-by-side --growth --out docs`: every size is twice the one before, each in a process of its own, until a
step takes a second or a gigabyte (`retrograd bench --growth` shows all sizes). Powers are the slopes of the logarithms over the four
largest sizes, beside that of the arithmetic; (!) is more than it by over 0.05. Memory is what a process has beyond
that of the smallest size. The gain of all threads over one is that of the largest size that both reached; the peer's ratio that of
its first and its last size.

![Times of steps by size, ours and the fastest peer's]({picture})

{table(grown)}
"""


def svg(grown):
    """A small log-log picture for each, ours and the peer's."""
    columns, wide, high, pad = 3, 300, 220, 44
    rows = math.ceil(len(grown) / columns)
    width, height = columns * wide, rows * high + 40
    parts = []
    for number, g in enumerate(grown):
        left, top = number % columns * wide + pad, number // columns * high + 56
        inner_wide, inner_high = wide - pad - 16, high - 78
        lines = [("ours", list(zip(g["sizes"], g["step_ns"])))]
        if g.get("peer") and g["peer"]["sizes"]:
            lines.append((g["peer"]["peer"], [(p["size"], p["step_ns"]) for p in g["peer"]["sizes"]]))
        sizes = [math.log10(n) for _, points in lines for n, _ in points]
        times = [math.log10(t) for _, points in lines for _, t in points]
        low_x, high_x, low_y, high_y = min(sizes), max(sizes), math.floor(min(times)), math.ceil(max(times))
        x = lambda n: left + inner_wide * (math.log10(n) - low_x) / max(high_x - low_x, 1e-9)
        y = lambda t: top + inner_high * (1 - (math.log10(t) - low_y) / max(high_y - low_y, 1e-9))
        parts.append(f'<text class="t" x="{left}" y="{top - 10}">{g["name"]}</text>')
        for e in range(low_y, high_y + 1):
            parts.append(f'<path class="grid" d="M{left} {y(10.0**e):.1f} H{left + inner_wide}"/>')
            parts.append(f'<text class="e" x="{left - 6}" y="{y(10.0**e) + 4:.1f}">{time(10.0**e)}</text>')
        for n in (g["sizes"][0], g["sizes"][-1]):
            anchor = "start" if n == g["sizes"][0] else "end"
            parts.append(f'<text class="s" text-anchor="{anchor}" x="{x(n):.1f}" y="{top + inner_high + 16}">{n:,}</text>')
        parts.append(f'<text class="s" text-anchor="middle" x="{left + inner_wide / 2}" y="{top + inner_high + 30}">{g["axis"]}</text>')
        for who, points in lines:
            colour = COLOURS.get(who, "#2f6fde")
            dash = "" if who == "ours" else ' stroke-dasharray="5 3"'
            path = " ".join(f"{'ML'[i > 0]}{x(n):.1f} {y(t):.1f}" for i, (n, t) in enumerate(points))
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
            parts += [f'<circle cx="{x(n):.1f}" cy="{y(t):.1f}" r="2.6" fill="{colour}"><title>{n:,}: {time(t)}</title></circle>' for n, t in points]
    peers = [p for p in NAMES if any(g.get("peer", {}).get("peer") == p for g in grown)]
    at = 16
    for who, name in [("ours", "retrograd")] + [(p, NAMES[p]) for p in peers]:
        dash = "" if who == "ours" else ' stroke-dasharray="5 3"'
        parts.append(f'<path d="M{at} 22 h26" stroke="{COLOURS.get(who, "#2f6fde")}" stroke-width="2"{dash}/>')
        parts.append(f'<text class="k" x="{at + 32}" y="26">{name}</text>')
        at += 56 + 8 * len(name)
    body = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="Times of steps by size">
<style>
text {{ font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 12px; fill: #1f2d3d }}
.t {{ font-weight: 600 }} .e {{ text-anchor: end; font-size: 10px; fill: #55636f }} .s {{ font-size: 10px; fill: #55636f }}
.bg {{ fill: #ffffff }} .grid {{ stroke: #dde1e5 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .e, .s {{ fill: #a8b3bd }} .bg {{ fill: #0d1117 }} .grid {{ stroke: #2b3138 }}
}}
</style>
<rect class="bg" width="{width}" height="{height}" rx="8"/>
{body}
</svg>
"""
