"""Folders of vectors as earlier versions wrote them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def without_digests(folder: Path) -> None:
    """Take the digests out of the headers of a folder's shards, and samples and sizes out of its manifest."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for shard in manifest["shards"]:
        del shard["samples"]
        file = folder / "shards" / f"{shard['name']}.safetensors"
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        recorded = json.loads(header["__metadata__"]["shard"])
        del recorded["check"]
        header["__metadata__"]["shard"] = json.dumps(recorded)
        new = json.dumps(header).encode()
        new += b" " * (-len(new) % 8)
        file.write_bytes(len(new).to_bytes(8, "little") + new + content[8 + length :])
        shard["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))
