"""Command line of the forge: progress to stderr, the installation as JSON to stdout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bundle.backends import BACKENDS
from bundle.guard import guarded
from bundle.ui import Reporter
from tests.forge import Variant, forge


def main() -> int:
    """Forge one vendor and return the exit code, as the build tool does."""
    parser = argparse.ArgumentParser(prog="python -m tests.forge", description="Make a vendor-shaped torch.")
    parser.add_argument("--backend", required=True, choices=sorted(BACKENDS))
    parser.add_argument("--stock", required=True, type=Path, metavar="DIR", help="the torch package to start from")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the forged installation")
    parser.add_argument("--variant", type=Variant, choices=list(Variant), default=Variant.FULL)
    parser.add_argument("--cxx", default="g++", help="the C++ compiler (default: g++)")
    arguments = parser.parse_args()
    ui = Reporter()

    def work() -> int:
        made = forge(
            BACKENDS[arguments.backend],
            stock=arguments.stock,
            out=arguments.out,
            ui=ui,
            variant=arguments.variant,
            cxx=arguments.cxx,
        )
        ui.result(made.to_json().rstrip())
        return 0

    return guarded(work, ui)


if __name__ == "__main__":
    sys.exit(main())
