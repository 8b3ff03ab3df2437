"""The sides of a comparison as processes: ours, started anew for every round, and the peers' modes, which are
set up once, checked, and then wait, stopped, for their turn."""

import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time as clock
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("SIDE_BY_SIDE_CACHE", ""))

# Peers that could not be built: they are shown as failed.
WITHOUT = os.environ.get("SIDE_BY_SIDE_WITHOUT", "").split()

# The first loss is the same sum in another order: off by some 1e-7 times the root of its length. Later
# ones less so, since Adam divides a gradient by its size, and one that is nothing but rounding decides
# a parameter's whole step. Another function, or another optimizer, is off by far more than either.
# JAX's first loss of automata is also taken in f64, since rounding adds up through gates; that one
# is held to the narrow bound, and its f32 losses to the other.
FIRST_AGREES = 1e-5
LATER_AGREES = 1e-3

# A mode may take so long until its first steps are made.
SETUP_SECONDS = 600
# A mode that takes so many times as long as the fastest of its peer in a trial is not measured further, nor is a peer
# that takes so many times as long as another.
HOPELESS = 1.5
HOPELESS_PEER = 4.0
# A round is disturbed where a cache line takes so many times as long to the other core as it can,
# where the hypervisor took such a share of the cores, or others did.
FAR, STOLEN, TAKEN = 1.5, 0.02, 0.05


def say(text):
    print(text, file=sys.stderr, flush=True)


def expected_losses(problem):
    from safetensors import safe_open

    with safe_open(problem, "numpy") as file:
        get = lambda name: [float(v) for v in file.get_tensor(name)]
        return {"inference": get("loss/inference")[0], "training": get("loss/training")}


def check(side, told, expected, plain):
    """The largest difference of the losses, as a share; an error where they don't agree. `plain` are the
    losses of three steps without dropout, by the first that made them."""
    pairs = []
    if told.get("inference") is not None:
        pairs.append(("of the initial weights", told["inference"], expected["inference"], FIRST_AGREES))
    rough = side.peer == "jax" and side.workload.startswith("logic-")
    for losses, wanted in ((told.get("losses", []), expected["training"]), (told.get("plain", []), plain or [])):
        for step, (their, our) in enumerate(zip(losses, wanted)):
            bound = LATER_AGREES if step or rough else FIRST_AGREES
            pairs.append((f"before step {step}", their, our, bound))
    if not pairs:
        raise RuntimeError("gives no loss to compare")
    for what, their, our, bound in pairs:
        if not abs(their - our) <= bound * abs(our):
            raise RuntimeError(f"the loss {what} is {their!r}, not {our!r}")
    return max(abs(their - our) / abs(our) for _, their, our, _ in pairs)


class Machine:
    """Where everything runs, and what disturbs it: jiffies that the cores worked, and that the hypervisor took."""

    def __init__(self, threads, realtime, retrograd):
        self.threads, self.realtime, self.retrograd = threads, realtime, retrograd
        names = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self.environment = os.environ | {name: str(threads) for name in names}

    def pin(self):
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.threads])

    def prefix(self):
        return ["chrt", "-f", "50"] if self.realtime else []

    def counters(self):
        """Seconds that all cores worked and that were stolen from them; zeros where the system doesn't say."""
        try:
            fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:
            return 0.0, 0.0
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, soft, stolen = fields[:8]
        return (user + nice + system + irq + soft) / tick, stolen / tick

    def run(self, command):
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, env=self.environment, preexec_fn=self.pin
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(str(c) for c in command)}\n{done.stderr[-2000:]}")
        return done.stdout

    def bench(self, workload):
        """What `retrograd bench` says of a workload."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "ours.json")
            self.run([*self.prefix(), self.retrograd, "bench", workload, "--threads", self.threads, "--json", out])
            return json.loads(out.read_text())[0]

    def latency(self):
        """Nanoseconds that a cache line takes to the other core; none on one thread, and where the command is
        older than this measure."""
        try:
            return self.bench("cache-line")["step_ns"] / 16
        except RuntimeError:
            return None


class Side:
    """A peer in one of its modes."""

    def __init__(self, machine, peer, mode, workload, problem):
        self.machine, self.peer, self.mode, self.workload = machine, peer, mode, workload
        self.told, self.times, self.peak, self.failed, self.differs = {}, [], None, None, None
        self.problem, self.process = problem, None

    def start(self):
        if self.peer in WITHOUT:
            raise RuntimeError("it could not be built here")
        arguments = [self.peer, self.mode, self.workload, self.problem, self.machine.threads]
        if self.peer in ("burn", "candle"):
            command = [CACHE / "target" / "release" / "peers", *arguments]
        else:
            command = [sys.executable, ROOT / "bench" / "peers" / "peers.py", *arguments]
        self.errors = tempfile.TemporaryFile("w+")
        # Nothing that an earlier run compiled: its time is a figure, too.
        self.cache = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=self.machine.environment | {"TORCHINDUCTOR_CACHE_DIR": self.cache.name},
            preexec_fn=self.machine.pin,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, args=(self.process.stdout,), daemon=True).start()
        self.told = self.answer(SETUP_SECONDS)

    def listen(self, stdout):
        for line in stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self, seconds):
        """The next line that is an object: libraries print others."""
        until = clock.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - clock.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"no answer after {seconds:.0f} s") from None
            if line is None:
                self.process.wait()
                raise RuntimeError(self.reason())
            if line.startswith("{"):
                return json.loads(line)

    def reason(self):
        """The error's line in what was written to standard error."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line.split(" ")[0] or "panicked" in line]
        return (errors or lines or [f"exit code {self.process.returncode}"])[-1][:300]

    def threads(self, policy, priority):
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
            except ProcessLookupError:
                pass

    def time(self, seconds):
        """Steps for so long, and the CPU seconds they took."""
        self.process.send_signal(signal.SIGCONT)
        if self.machine.realtime:
            self.threads(os.SCHED_FIFO, 50)
        before = self.cpu()
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        figures = self.answer(SETUP_SECONDS)
        used = self.cpu() - before
        self.rest()
        self.peak = figures.get("peak_rss_bytes") or self.peak
        return figures["step_ns"], used

    def rest(self):
        """Threads that still look for work would disturb the others."""
        self.process.send_signal(signal.SIGSTOP)

    def cpu(self):
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        self.cache.cleanup()
        self.process = None

    def figures(self):
        """For the file of figures."""
        found = {"peer": self.peer, "mode": self.mode}
        if self.failed:
            return found | {"failed": self.failed}
        keep = ("version", "compile_s", "imported_rss_bytes")
        return found | {k: self.told[k] for k in keep if self.told.get(k) is not None} | {
            "step_ns": statistics.median(self.times),
            "all_ns": self.times,
            "peak_rss_bytes": self.peak,
            "loss_differs_by": self.differs,
        }


def set_up(sides, expected, seconds):
    """Starts and checks every side and gives it a trial. Those that fail, or are hopelessly slower than another, end;
    the others are given back."""
    running, plain = [], None

    def end_hopeless(among, limit):
        best = min(s.times[0] for s in among)
        for side in [s for s in among if s.times[0] > limit * best]:
            side.end()
            running.remove(side)

    for side in sides:
        say(f"  {side.peer}, {side.mode}: setting up")
        try:
            side.start()
            side.differs = check(side, side.told, expected, plain)
            plain = plain or side.told.get("plain")
            trial, _ = side.time(seconds)
        except (RuntimeError, OSError) as problem:
            side.failed = str(problem)
            say(f"  {side.peer}, {side.mode}: failed: {side.failed}")
            side.end()
            continue
        side.times = [trial]
        running.append(side)
        end_hopeless([s for s in running if s.peer == side.peer], HOPELESS)
    if running:
        end_hopeless(running, HOPELESS_PEER)
    return running


def one_round(machine, workload, running, number, seconds):
    """Ours, then all others, each time beginning with another of them."""
    noted = {"load": os.getloadavg()[0], "latency_ns": machine.latency()}
    start, (busy, stolen) = clock.monotonic(), machine.counters()
    before = os.times()
    ours = machine.bench(workload)
    after = os.times()
    own = after.children_user + after.children_system - before.children_user - before.children_system
    times = {}
    first = number % max(1, len(running))
    for side in running[first:] + running[:first]:
        times[side], used = side.time(seconds)
        own += used
    elapsed = (clock.monotonic() - start) * (os.cpu_count() or 1)
    busy, stolen = (after - before for after, before in zip(machine.counters(), (busy, stolen)))
    noted |= {"others": max(0.0, busy - own) / elapsed, "stolen": stolen / elapsed}
    return noted, ours, times


def disturbed(noted, rounds, realtime):
    known = [r["latency_ns"] for r in rounds if r["latency_ns"] is not None]
    far = noted["latency_ns"] is not None and noted["latency_ns"] > FAR * min(known)
    # At real-time priority others have what we leave.
    return far or noted["stolen"] > STOLEN or (not realtime and noted["others"] > TAKEN)


def measure(machine, workload, sides, expected, rounds, seconds):
    """Rounds of all sides; disturbed ones are repeated, as many again at most."""
    made = []
    try:
        running = set_up(sides, expected, seconds)
        for number in range(2 * rounds):
            quiet = [r for r in made if not disturbed(r[0], [m[0] for m in made], machine.realtime)]
            if len(quiet) >= rounds:
                break
            say(f"  round {number + 1}: {len(quiet)} of {rounds} undisturbed so far")
            made.append(one_round(machine, workload, running, number, seconds))
        bad = lambda r: disturbed(r[0], [m[0] for m in made], machine.realtime)
        for noted, _, _ in made:
            noted["disturbed"] = bad((noted, None, None))
        kept = sorted(made, key=bad)[:rounds]
        for side in running:
            side.times = [times[side] for _, _, times in kept]
    finally:
        for side in sides:
            side.end()
    ours = [ours for _, ours, _ in kept]
    return {
        "ours": {
            "step_ns": statistics.median(o["step_ns"] for o in ours),
            "all_ns": [o["step_ns"] for o in ours],
            "gflops": statistics.median(o["gflops"] for o in ours) if "gflops" in ours[0] else None,
            "peak_rss_bytes": max((o.get("peak_rss_bytes") or 0 for o in ours)) or None,
        },
        "rounds": [noted for noted, _, _ in kept],
        "repeated": len(made) - len(kept),
        "modes": [side.figures() for side in sides],
    }
