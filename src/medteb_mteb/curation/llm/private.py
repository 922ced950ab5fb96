"""Refusal to send texts that were not anonymised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.files.records import Text

__all__ = ["refuse_private"]


def refuse_private(texts: Mapping[str, Sequence[Text]]) -> None:
    """Refuse to send texts that have not been anonymised.

    Args:
        texts: Texts by name for messages, for instance `{"queries": [...], "documents": [...]}`.

    Raises:
        BuildError: A text has not been anonymised.
    """
    counts = {name: sum(not text.anonymised for text in some) for name, some in texts.items()}
    if any(counts.values()):
        summary = " and ".join(f"{count} of {len(texts[name])} {name}" for name, count in counts.items())
        raise BuildError(
            f"{summary} have not been anonymised, and this step would send them to an LLM. Run 'medteb "
            "anonymize' on them first; if they hold no personal data, pass --already-anonymous "
            "(already_anonymous=True)."
        )
