"""`make bench`: runs every benchmark in a process of its own and prints their figures as they come."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path


def benchmarks() -> list[str]:
    """Every benchmark of this folder, by name."""
    here = Path(__file__).parent
    packages = (path.parent for path in here.glob("*/__main__.py"))
    return sorted(path.stem for path in (*here.glob("[a-z]*.py"), *packages))


def main() -> int:
    """Run them; the exit code is the number of those that failed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"some of: {', '.join(benchmarks())}")
    chosen = parser.parse_args().only or benchmarks()
    failed = 0
    for name in chosen:
        print(f"# {name}", file=sys.stderr, flush=True)
        failed += subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
