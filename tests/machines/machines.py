"""What compare, cost and golden share: where things are, what is built, and the engine in Node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/retrograd"


def need(*packages):
    """Installs packages of Debian that are not there."""
    subprocess.run([ROOT / "tests/debian-packages", *packages], check=True)


def node():
    if not shutil.which("node"):
        need("nodejs")
    return "node"


def call_wasm(module, request, *folder):
    """What the engine answers in Node; the folder is what it has for files."""
    command = [node(), "--no-warnings", HERE / "call.mjs", module, *folder]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{module}: {request}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["ok"]


def built(target):
    """What tests/machines/build prints: the paths of what it built."""
    done = subprocess.run([HERE / "build", target], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"tests/machines/build {target} failed")
    return done.stdout.split()


def engines():
    """The engine as WebAssembly, without vectors and with them."""
    return built("wasm")


def arm():
    """The command for 64-bit ARM, and what it is run with."""
    need("qemu-user")
    (retrograd,) = built("aarch64")
    return ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"], retrograd
