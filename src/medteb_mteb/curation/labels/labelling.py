"""Labels and the agreement of the judges, from a folder of judgements."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from medteb_mteb.curation.files.folder import write_json, write_text
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus, counts
from medteb_mteb.curation.labels.grades import read_judging
from medteb_mteb.curation.labels.provenance import provenance_of_judging
from medteb_mteb.editions import PROVENANCE

__all__ = ["write_labels"]


def write_labels(
    judgements: str | Path, out: str | Path, rule: ConsensusRule | None = None
) -> dict[str, Any]:
    """Write `out/labels.jsonl` and `out/agreement.json`, and return the content of the latter.

    If the judgements are those of `medteb judge`, who judged and when goes to `out/provenance.json`; else
    that file is deleted, since it belongs to other judgements.

    Args:
        judgements: JSONL file or folder of judgements, see `read_judging`.
        out: Folder to write.
        rule: The rule; default the published one.

    Raises:
        BuildError: The judgements are unusable, see `read_judging` and `consensus`; or the folder is theirs,
            or cannot be written to.
    """
    rule, folder = rule or ConsensusRule(), Path(out)
    provenance = provenance_of_judging(judgements)
    own = Path(judgements) if Path(judgements).is_dir() else Path(judgements).parent
    if provenance and folder.resolve() == own.resolve():
        raise BuildError(f"{folder} holds the judgements and their provenance; give another folder.")
    judging = read_judging(judgements)
    pairs = [pair[:2] for pair in judging.failed]
    labels = consensus(judging.judgements, rule, judges=judging.judges, pairs=pairs)
    counted = [one for one in judging.judgements if not rule.judges or one.judge in rule.judges]
    try:
        report = agreement(counted, positive=rule.positive).to_json()
    except BuildError as error:  # a single judge gives labels but no agreement
        report = {"note": str(error)}
    missing = Counter(judge for _, _, judge in judging.failed)
    report["missing"] = {judge: missing[judge] for judge in rule.judges or judging.judges}
    content = {
        "rule": rule.kind,
        "positive": list(rule.positive),
        **rule.options(),
        "labels": counts(labels),
        "agreement": report,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{folder} cannot be written to ({error.strerror}).") from error
    rows = (json.dumps(label.to_json(), ensure_ascii=False) + "\n" for label in labels)
    write_text(folder / "labels.jsonl", "".join(rows))
    write_json(folder / "agreement.json", content)
    if provenance:
        write_json(folder / PROVENANCE, provenance)
    else:
        (folder / PROVENANCE).unlink(missing_ok=True)
    return content
