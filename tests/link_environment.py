"""Link the dependencies that wheels declare from this environment into a new one; no file is stored twice.

usage: python link_environment.py SITE_PACKAGES WHEEL ... [--leave-to-pip NAME ...]

A distribution that no wheel declares, directly or through others, is not linked: code that needs it fails in
the new environment as it would for a user. Scripts are not linked, because they name the interpreter of this
environment; a distribution whose script is needed is left to pip.
"""

from __future__ import annotations

import argparse
import os
import shutil
from email.parser import Parser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def requirements(wheel: Path) -> list[Requirement]:
    """Return what a wheel requires, optional dependencies included."""
    with ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def applies(requirement: Requirement, extras: set[str]) -> bool:
    """Return True if a requirement applies here with one of the extras, or without any."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def closure(wanted: list[Requirement], skipped: set[str]) -> dict[str, Distribution]:
    """Return the distributions that requirements need, by name, each with all that it needs itself."""
    needed: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    queue = [one for one in wanted if applies(one, set())]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        key = name, frozenset(requirement.extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = distribution(name) if name not in skipped else None
        except PackageNotFoundError:
            installed = None  # pip will fetch it
        if installed is None:
            continue
        needed[name] = installed
        inner = map(Requirement, installed.requires or [])
        queue += [one for one in inner if applies(one, set(requirement.extras))]
    return needed


def link(one: Distribution, target: Path) -> None:
    """Link the files of a distribution into a folder; copies them where the file system does not link."""
    for file in one.files or []:
        if ".." in file.parts or file.is_absolute():
            continue
        source, place = Path(str(one.locate_file(file))), target / file
        if not source.is_file() or place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place)
        except OSError:
            shutil.copy2(source, place)


def main() -> None:
    """Link the declared dependencies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=Path)
    parser.add_argument("wheels", type=Path, nargs="+")
    parser.add_argument("--leave-to-pip", nargs="*", default=[])
    given = parser.parse_args()
    # The wheels themselves are installed by pip; so are distributions whose scripts are used.
    own = {canonicalize_name(wheel.name.split("-")[0]) for wheel in given.wheels}
    wanted = [one for wheel in given.wheels for one in requirements(wheel)]
    needed = closure(wanted, own)
    for name in sorted(needed.keys() - set(given.leave_to_pip)):
        link(needed[name], given.site)


if __name__ == "__main__":
    main()
