"""``python -m tools.mini OUT [SEED]`` writes the mini edition below OUT."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.mini import build_mini


def main() -> None:
    """Write the edition and print the digest of each task."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m tools.mini OUT [SEED]")
    seed = int(sys.argv[2]) if len(sys.argv) == 3 else 42
    for edition in build_mini(Path(sys.argv[1]), seed):
        sys.stdout.write(f"{edition.task} {edition.digest}\n")


if __name__ == "__main__":
    main()
