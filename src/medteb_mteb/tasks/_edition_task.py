"""Base of the packaged tasks: data from an edition, and metadata that follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, get_args

from mteb.timing import TimingStack
from mteb.types import Licenses

from medteb_mteb.abstasks.statistics import LocalMetadata, LocalStatistics
from medteb_mteb.editions import Edition, EditionError, find_edition, verify
from medteb_mteb.folders import load_into, read_folder

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

REFERENCE = "https://openreview.net/forum?id=JsNmDdKJmx"

CITATION = r"""
@inproceedings{jiang2026benchmarking,
  author = {Jiang, Angqing and Chen, Jianlyu and Fang, Zhe and Wang, Yongcan and Li, Xinpeng and Ding, Keyu and Lian, Defu},
  booktitle = {Proceedings of the 64th Annual Meeting of the Association for Computational Linguistics (Volume 1: Long Papers)},
  eprint = {2604.10937},
  eprinttype = {arXiv},
  note = {First version: ICLR 2026 submission 20011, https://openreview.net/forum?id=JsNmDdKJmx},
  pages = {20000--20020},
  title = {Benchmarking and Enabling Efficient Chinese Medical Retrieval via Asymmetric Encoders},
  url = {https://arxiv.org/abs/2604.10937},
  year = {2026},
}
"""  # noqa: E501

MINI = "mini"
MINI_DATE = ("2026-11-01", "2026-11-30")
_MINI_NOTE = (
    "Data of this edition: `mini`, synthetic text written by a generator from hand-written knowledge tables, "
    "with labels that follow from construction. It is for smoke tests and teaching, not for ranking models. "
    "The published benchmark's data are closed and are not part of it."
)
_OTHER_NOTE = "Data of this edition: `{name}` {version}, found in a local folder; licence {licence}."

# Shown where no edition could be resolved; load_data then says why.
NO_REVISION = "no-edition"


def metadata_of(base: TaskMetadata, edition: Edition | None) -> TaskMetadata:
    """Return the task's metadata with everything that depends on the data taken from the edition.

    Revision and licence come from the manifest, as do ``annotations_creators``, ``sample_creation`` and
    ``date`` if it has them. Fields that the manifest of another edition lacks stay unknown (None).
    """
    if edition is None:
        absent = {"dataset": {**base.dataset, "revision": NO_REVISION}}
        return LocalMetadata.in_folder(None, base.model_dump() | absent)
    mini = edition.name == MINI
    known = {
        "annotations_creators": "algorithmic" if mini else None,
        "sample_creation": "created" if mini else None,
        "date": MINI_DATE if mini else None,
    }
    note = _MINI_NOTE if mini else _OTHER_NOTE.format(**vars(edition))
    content = base.model_dump() | {
        "dataset": {**base.dataset, "revision": edition.digest},
        "description": f"{base.description} {note}",
        "license": licence_for_mteb(edition.licence),
        **{key: edition.extra.get(key, value) for key, value in known.items()},
    }
    return LocalMetadata.in_folder(edition.path, content)


def licence_for_mteb(licence: str) -> str:
    """Return a manifest's licence as mteb spells it: one of its identifiers, a URL, or ``not specified``."""
    known = get_args(Licenses)
    flat = {name for part in known for name in (get_args(part) or (part,))}
    if licence.lower() in flat:
        return licence.lower()
    return licence if licence.startswith(("http://", "https://")) else "not specified"


def _resolve(base: TaskMetadata) -> tuple[Edition | None, TaskMetadata, str]:
    """Return the active edition, the matching metadata, and the problem if there is no edition."""
    try:
        edition = find_edition(base.name)
        return edition, metadata_of(base, edition), ""
    except ValueError as error:  # EditionError, or a manifest field that mteb does not accept
        return None, metadata_of(base, None), str(error)


class EditionTask(LocalStatistics):
    """A task whose data is an edition; put it before mteb's task class in the bases.

    The active edition (``$MEDTEB_DATA/<task>/``, else the packaged one) is resolved when the task is
    constructed, and its digest is the dataset revision in the results. An edition that cannot be resolved is
    reported by `load_data`, not by the constructor: mteb constructs every task it knows only to list them.
    """

    revision_matters = True  # see registry._keep_editions_apart
    base_metadata: ClassVar[TaskMetadata]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "metadata" in vars(cls):
            cls.base_metadata = cls.metadata
            # mteb lists and filters classes, so the class shows the active edition at import.
            _, cls.metadata, _ = _resolve(cls.base_metadata)

    def __init__(self, **kwargs: Any) -> None:
        self.edition, self.metadata, self.edition_error = _resolve(type(self).base_metadata)
        super().__init__(**kwargs)

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Verify the edition's files against the manifest and read them; nothing comes from the Hub.

        Raises:
            EditionError: If there is no edition or a file differs from the manifest, naming the file.
        """
        del num_proc, kwargs  # a checked read of local files takes no options
        if self.data_loaded:
            return
        if self.edition is None:
            raise EditionError(self.edition_error)
        with (timer or TimingStack())("Data loading", log_message=f"Loading {self.metadata.name}..."):
            verify(self.edition)
            load_into(self, read_folder(self.edition.path))
