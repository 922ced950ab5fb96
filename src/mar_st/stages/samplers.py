"""Batch samplers: rows of one data entry or of all, without equal texts, of similar length.

sentence-transformers' samplers read a row from the dataset for every test of a duplicate, promise a number of
batches that they may not reach, and ignore lengths. With several processes they give each process its own
batch, maybe of another data entry. These samplers work on integer keys of the texts and give exactly
`rows // batch_size` batches per epoch; a batch is one optimiser step over all processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from torch.utils.data import BatchSampler, Dataset
from transformers.utils import logging

from mar_st.data import column_texts, digests
from mar_st.data.redrawn import RedrawnDataset
from mar_st.errors import MarError
from mar_st.stages.first_fit import FirstFit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import datasets

    from mar_st.data import Texts

logger = logging.get_logger(__name__)

Value = TypeVar("Value")

#: Column that tells the collator which data entry a row is from.
SOURCE_COLUMN = "dataset_name"


class BatchError(MarError):
    """Rows that do not make the batches that a stage asks for."""


class TrainRows(Dataset[dict[str, Any]]):
    """The rows of several datasets, one after another; each row also says which dataset it is from.

    A batch is read with one access per dataset instead of one per row. The documents of a
    `RedrawnDataset` are those of the epoch.

    Args:
        data: Datasets by name.
    """

    def __init__(self, data: Mapping[str, datasets.Dataset]) -> None:
        self.names = list(data)
        self._datasets = list(data.values())
        self._texts = [_plain_texts(dataset) for dataset in self._datasets]
        self._ends = np.cumsum([len(dataset) for dataset in self._datasets])
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose rows are returned."""
        self.epoch = epoch

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def starts(self) -> list[int]:
        """Return the index of the first row of each dataset."""
        return [0, *self._ends[:-1].tolist()]

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        wanted = np.asarray(indices)
        of_dataset = np.searchsorted(self._ends, wanted, side="right")
        rows: list[dict[str, Any]] = [{}] * len(wanted)
        for part in np.unique(of_dataset):
            places = np.flatnonzero(of_dataset == part)
            content = self._content(part, wanted[places] - self.starts[part])
            for position, place in enumerate(places):
                row = {column: values[position] for column, values in content.items()}
                rows[place] = {**row, SOURCE_COLUMN: self.names[part]}
        if any(None in row.values() for row in rows):
            _fill(rows, wanted)
        return rows

    def _content(self, part: int, rows: np.ndarray) -> dict[str, Sequence[Any]]:
        dataset, texts = self._datasets[part], self._texts[part]
        if isinstance(dataset, RedrawnDataset):
            return dataset.content(rows, self.epoch)
        if texts is None:
            content: dict[str, Sequence[Any]] = dataset[rows.tolist()]
            return content
        return {name: column.take(rows) for name, column in texts.items()}


def _fill(rows: list[dict[str, Any]], indices: np.ndarray) -> None:
    """Fill missing negatives with documents of the other rows; the indices of the batch seed the draw."""
    rng = np.random.default_rng(indices)
    owners = [[text for name, text in _documents(row) if text is not None] for row in rows]
    if len(rows) < 2:
        raise BatchError(
            "A row without negatives takes documents of the other rows of its batch, so each process needs "
            "at least two rows per batch. Choose a larger batch_size, or mine negatives (mar mine)."
        )
    for place, row in enumerate(rows):
        empty = [name for name, text in _documents(row) if text is None]
        if not empty:
            continue
        few = len(rows) - 1 < len(empty)
        others = rng.choice(len(rows) - 1, size=len(empty), replace=few)
        for name, other in zip(empty, (others + (others >= place)).tolist(), strict=True):
            documents = owners[other]
            row[name] = documents[int(rng.integers(len(documents)))]


def _documents(row: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the columns of a row that hold its documents."""
    return [(name, row[name]) for name in row if name == "positive" or name.startswith("negative_")]


def _plain_texts(dataset: datasets.Dataset) -> dict[str, Texts] | None:
    """Return the columns of a dataset with only texts; reading them directly is faster."""
    names = dataset.column_names
    redrawn = isinstance(dataset, RedrawnDataset)
    if redrawn or dataset.format["type"] is not None or text_columns(dataset) != names:
        return None
    return {name: column_texts(dataset, name) for name in names}


class BatchPlan:
    """Batches of one pool of rows, epoch by epoch.

    Every row is used once per epoch, except for a remainder of fewer than `batch_size` rows. With `keys`,
    rows that share a key never share a batch: the later one waits for another batch. If that leaves too few
    batches, the last ones are filled up with rows drawn again, and a warning is logged.

    Args:
        rows: Number of rows.
        batch_size: Rows per batch.
        keys: Integer keys of the texts of each row, `(rows, texts)`; `None` allows equal texts.
        lengths: Length of each row, `(rows,)`, any unit; needed for `groups`.
        groups: Batches that are sorted by length together and cut from the sorted rows; 0 for none.
        seed: Determines the batches together with the epoch, so a resumed run draws the same ones.

    Raises:
        BatchError: A column has fewer different keys than a batch has rows.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        *,
        keys: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        groups: int = 0,
        seed: int | Sequence[int] = 0,
    ) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.keys, self.groups = keys, groups
        self.lengths = lengths if groups else None
        self.seed = [seed] if isinstance(seed, int) else list(seed)
        if len(self) and keys is not None:
            self._check_distinct(keys)

    def _check_distinct(self, keys: np.ndarray) -> None:
        """Raise `BatchError` if a column holds fewer different texts than a batch needs."""
        for column in keys.T:
            # The first rows nearly always suffice.
            if len(np.unique(column[: 16 * self.batch_size])) >= self.batch_size:
                continue
            distinct = len(np.unique(column))
            if distinct < self.batch_size:
                raise BatchError(
                    f"Equal texts must not meet in a batch, and a column of the data holds only {distinct} "
                    f"different texts for a batch of {self.batch_size}. Choose a smaller batch_size."
                )

    def __len__(self) -> int:
        return self.rows // self.batch_size

    def epoch(self, epoch: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch.

        Raises:
            BatchError: There are not enough rows without a common text for a batch.
        """
        rng = np.random.default_rng([*self.seed, epoch])
        order = self._permutation(rng)
        # Rows that are not sorted by length are one pool.
        together = self.groups * self.batch_size or max(self.rows, 1)
        waiting = order[:0]
        yielded = 0
        for number, start in enumerate(range(0, self.rows, together)):
            pool = np.concatenate([waiting, order[start : start + together]])
            # Alternate short and long rows at the end of the pool, where rows are left over.
            pool, left = self._whole(pool, longest_first=number % 2 == 1)
            if self.keys is None:
                batches, waiting = (batch.tolist() for batch in pool.reshape(-1, self.batch_size)), left
                for batch in self._shuffled(batches, rng):
                    yielded += 1
                    yield batch
                continue
            fitting = FirstFit(pool, self.keys, self.batch_size)
            for batch in self._shuffled(fitting, rng):
                yielded += 1
                yield batch
            waiting = np.concatenate([fitting.left(), left])
        yield from self._missing(len(self) - yielded, waiting, rng)

    def _permutation(self, rng: np.random.Generator) -> np.ndarray:
        """Return all rows in a random order; 4 bytes each."""
        return rng.permutation(np.arange(self.rows, dtype=np.int32))

    def _whole(self, pool: np.ndarray, *, longest_first: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a pool that make whole batches, sorted by length, and the remaining rows."""
        full = len(pool) // self.batch_size * self.batch_size
        pool, left = pool[:full], pool[full:]
        if self.lengths is not None:
            lengths = self.lengths[pool]
            pool = pool[np.argsort(-lengths if longest_first else lengths, kind="stable")]
        return pool, left

    def _shuffled(self, batches: Iterable[list[int]], rng: np.random.Generator) -> Iterable[list[int]]:
        """Return batches in a random order if they are sorted by length."""
        if not self.groups:
            return batches
        made = list(batches)
        return (made[index] for index in rng.permutation(len(made)))

    def _missing(self, number: int, waiting: np.ndarray, rng: np.random.Generator) -> Iterator[list[int]]:
        """Yield the last batches of an epoch if rows with equal texts were left over."""
        if number <= 0 or self.keys is None:
            return
        logger.warning_once(
            f"Equal texts must not meet in a batch, so {number} of {len(self)} batches of an epoch are "
            "filled up with rows that were used before."
        )
        fitting = FirstFit(waiting, self.keys, self.batch_size)
        for _ in range(number):
            others = self._permutation(rng)
            if not fitting.fill() and not fitting.fill_with(others):
                raise BatchError(
                    f"Equal texts must not meet in a batch, and only {len(fitting)} rows without a common "
                    f"text were found for a batch of {self.batch_size}. Choose a smaller batch_size."
                )
            yield fitting.take()


class TrainBatches(BatchSampler):
    """Batches of several pools of rows in a random order that gives each its share.

    Args:
        plans: Returns the pools of an epoch; their numbers of rows and batches are the same in every epoch.
        starts: Offset of each pool's row numbers.
        seed: Seed of the order.
        world: Processes that take equal slices of a batch. Its rows, which may be sorted by length, are dealt
            out so that each gets short and long ones.
    """

    def __init__(
        self,
        plans: Callable[[int], Sequence[BatchPlan]],
        starts: Sequence[int],
        seed: int = 0,
        world: int = 1,
    ) -> None:
        first = plans(0)
        super().__init__(range(sum(plan.rows for plan in first)), first[0].batch_size, drop_last=True)
        self.plans, self.starts, self.seed = plans, list(starts), seed
        self.world = world
        self.epoch = 0
        self._sizes = [len(plan) for plan in first]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self._sizes)

    def __iter__(self) -> Iterator[list[int]]:
        turns = np.repeat(np.arange(len(self._sizes)), self._sizes)
        np.random.default_rng([self.seed, self.epoch]).shuffle(turns)
        batches = [plan.epoch(self.epoch) for plan in self.plans(self.epoch)]
        for turn in turns.tolist():
            rows = [row + self.starts[turn] for row in next(batches[turn])]
            yield [row for rank in range(self.world) for row in rows[rank :: self.world]]


def train_batches(
    data: Mapping[str, datasets.Dataset],
    batch_size: int,
    *,
    mixed: bool = False,
    no_duplicates: bool = True,
    groups: int = 0,
    document_columns: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    world: int = 1,
) -> TrainBatches:
    """Return the batches of a stage over the rows of `TrainRows(data)`.

    Args:
        data: Datasets by name.
        batch_size: Rows per optimiser step, over all processes.
        mixed: Let a batch hold rows of several datasets; otherwise all rows of a batch are of one dataset.
        no_duplicates: Never put rows that share a text, in any column, into the same batch.
        groups: Batches that are sorted by length together; 0 for none.
        document_columns: By dataset, the columns whose longest text is a row's length (characters).
        seed: Seed.
        world: Processes that share a batch.

    Raises:
        BatchError: A dataset has fewer rows than a batch and would never be used, or a column with fewer
            different texts than a batch.
    """
    if mixed:
        pools = [("all data entries together", list(data))]
    else:
        pools = [(f"the data {name!r}", [name]) for name in data]
    sizes = [sum(len(data[name]) for name in names) for _, names in pools]
    for (what, _), rows in zip(pools, sizes, strict=True):
        if rows < batch_size:
            raise BatchError(
                f"A batch takes {batch_size} rows and {what} has {rows}, so it would never be used. Choose a "
                "smaller batch_size, 'batches: mixed', or leave it out with 'data'."
            )
    keys = {name: _keys(dataset) for name, dataset in data.items()} if no_duplicates else {}
    documents = document_columns or {}
    lengths = {name: _lengths(dataset, documents.get(name)) for name, dataset in data.items() if groups}

    def plans(epoch: int) -> list[BatchPlan]:
        return [
            BatchPlan(
                rows,
                batch_size,
                keys=_joined([keys[name](epoch) for name in names if name in keys]),
                lengths=_joined([lengths[name](epoch) for name in names if name in lengths]),
                groups=groups,
                seed=(seed, index),
            )
            for index, (rows, (_, names)) in enumerate(zip(sizes, pools, strict=True))
        ]

    redrawn = any(isinstance(dataset, RedrawnDataset) for dataset in data.values())
    starts = [0, *np.cumsum(sizes)[:-1].tolist()]
    return TrainBatches(plans if redrawn else _always(plans(0)), starts, seed, world)


def text_columns(dataset: datasets.Dataset) -> list[str]:
    """Return the columns of a dataset that hold texts."""
    return [
        name
        for name, feature in dataset.features.items()
        if getattr(feature, "dtype", None) in ("string", "large_string")
        and name not in (*DEFAULT_LABEL_COLUMNS, SOURCE_COLUMN)
    ]


def _always(value: Value) -> Callable[[int], Value]:
    """Return a function that gives the same value for every epoch."""
    return lambda _: value


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    return np.concatenate(parts) if parts else None


def _keys(dataset: datasets.Dataset) -> Callable[[int], np.ndarray]:
    """Return the keys of all texts of an epoch, `(rows, texts)`; equal texts of any dataset have equal keys.

    A missing negative, which the batch fills with one of its own texts, keeps no row out.
    """
    if isinstance(dataset, RedrawnDataset):
        draws = dataset.draws
        of_queries, of_documents = digests(draws.queries)[:, 0], digests(draws.documents)[:, 0]
        return lambda epoch: dataset.values(epoch, of_queries, of_documents)
    column_keys: list[np.ndarray] = []
    for column in text_columns(dataset):
        texts = column_texts(dataset, column)
        keys = digests(texts)[:, 0]
        column_keys.append(np.where(texts.missing(), column_keys[0], keys) if column_keys else keys)
    return _always(np.stack(column_keys, axis=1))


def _lengths(
    dataset: datasets.Dataset, document_columns: Sequence[str] | None
) -> Callable[[int], np.ndarray]:
    """Return the characters of each row's longest document; without documents, of its longest text."""
    columns = list(document_columns or text_columns(dataset))
    if isinstance(dataset, RedrawnDataset):
        draws, places = dataset.draws, [dataset.texts.index(column) for column in columns]
        of_queries, of_documents = draws.queries.lengths(), draws.documents.lengths()
        return lambda epoch: dataset.values(epoch, of_queries, of_documents, 0)[:, places].max(axis=1)
    return _always(np.max([column_texts(dataset, column).lengths() for column in columns], axis=0))
