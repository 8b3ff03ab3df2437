"""The `retrograd` command."""

from __future__ import annotations

import sys

from . import _retrograd


def main() -> int:
    """Runs the command with the program's arguments; returns its exit code."""
    return _retrograd.command(["retrograd", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
