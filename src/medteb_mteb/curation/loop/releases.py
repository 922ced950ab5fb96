"""Releases: models with their indexes, of which the link `current` names the one that is served.

A folder of releases holds a link per release, named by its month, to the folder that the step `release` wrote
(`model`, `index`), and the link `current` to one of them. Names sort by time.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument, Settings, say

if TYPE_CHECKING:
    from collections.abc import Mapping

CURRENT = "current"
#: Environment variable with the keys of the server, as `mar serve` reads it; the first one is sent.
KEY_VARIABLE = "MAR_API_KEYS"
Server: TypeAlias = Annotated[str, Field(pattern=r"^https?://")]
SERVER = (
    f"Address of the server to reload, e.g. http://127.0.0.1:8000; its key is the first of ${KEY_VARIABLE}."
)
_SECONDS = 300


class RollbackSettings(Settings):
    """Options of `medteb rollback`."""

    releases: Annotated[Path, Argument()] = Field(description="Folder of releases.")
    server: Server | None = Field(None, description=SERVER)


def rollback(settings: RollbackSettings) -> dict[str, str]:
    """Serve the release before the current one again.

    The link 'current' then names that release, and the server opens it. The next month starts from its model.
    """
    name = served(settings.releases)
    before = earlier(settings.releases, name)
    if before is None:
        raise MarError(f"{settings.releases} has no release before {name}.")
    point(settings.releases / CURRENT, Path(before))
    reload(settings.server)
    return {"before": name, "current": before}


def served(releases: Path) -> str:
    """Return the name of the current release; empty if there is none.

    Raises:
        MarError: The link leads to no release.
    """
    link = releases / CURRENT
    if not link.is_symlink():
        return ""
    if not link.is_dir():
        raise MarError(f"{link} leads nowhere. Point it at a release: ln -sfn NAME {link}")
    return link.readlink().name


def earlier(releases: Path, name: str) -> str | None:
    """Return the name of the newest release before a name, or None."""
    names = (one.name for one in releases.glob("[!.]*/") if one.name != CURRENT)
    return max((one for one in names if one < name), default=None)


def point(link: Path, target: Path) -> None:
    """Let a link lead to a target, at once for all readers."""
    link.parent.mkdir(parents=True, exist_ok=True)
    part = link.with_name(f".{link.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)


def reload(server: str | None) -> None:
    """Let a server open the current release; nothing without one.

    Raises:
        MarError: It cannot be reached, refuses the key, or cannot open the release.
    """
    if server is None:
        return
    keys = os.environ.get(KEY_VARIABLE, "").replace(",", " ").split()
    address = f"{server.rstrip('/')}/admin/reload"
    request = urllib.request.Request(address, method="POST", data=b"")  # noqa: S310 -- http, see `Server`
    if keys:
        request.add_header("Authorization", f"Bearer {keys[0]}")
    # Without a proxy: the server is this loop's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as response:
            say(f"{server} serves {_json(response.read()).get('documents')} documents")
    except urllib.error.HTTPError as error:
        error_of = _json(error.read()).get("error") or {}
        raise MarError(
            f"{server} did not open the release (status {error.code}): {error_of.get('message', '')} "
            f"Its key belongs into ${KEY_VARIABLE}. Run the same command again."
        ) from error
    except OSError as error:
        raise MarError(f"{server} cannot be reached ({error}). Start it, and run this again.") from error


def _json(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content[: 1 << 20])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
