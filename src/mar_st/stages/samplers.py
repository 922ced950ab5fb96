"""Rows and batches of a stage: of one data entry or of all, without equal texts, of similar length.

sentence-transformers' samplers read a row from the dataset for every test of a duplicate, promise a number of
batches that they may not reach, and ignore lengths. With several processes they give each process its own
batch, maybe of another data entry. These samplers work on integer keys of the texts and give exactly
`rows // batch_size` batches per epoch; a batch is shared by all processes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from torch.utils.data import BatchSampler, Dataset
from transformers.utils import logging

from mar_st.data.columns import column_texts
from mar_st.data.sequences import digests
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import datasets

logger = logging.get_logger(__name__)

#: Column that tells the collator which data entry a row is from.
SOURCE_COLUMN = "dataset_name"


class TrainRows(Dataset[dict[str, Any]]):
    """The rows of several datasets, one after another; each row also says which dataset it is from.

    A batch is read with one access per dataset instead of one per row.

    Args:
        data: Datasets by name.
    """

    def __init__(self, data: Mapping[str, datasets.Dataset]) -> None:
        self.names, self._datasets = list(data), list(data.values())
        self._ends = np.cumsum([len(dataset) for dataset in self._datasets])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        wanted = np.asarray(indices)
        of_dataset = np.searchsorted(self._ends, wanted, side="right")
        rows: list[dict[str, Any]] = [{}] * len(wanted)
        for part in np.unique(of_dataset):
            places = np.flatnonzero(of_dataset == part)
            numbers = wanted[places] - (self._ends[part - 1] if part else 0)
            content = self._datasets[part][numbers.tolist()]
            for position, place in enumerate(places):
                row = {column: values[position] for column, values in content.items()}
                rows[place] = {**row, SOURCE_COLUMN: self.names[part]}
        return rows


class FirstFit:
    """Fills one batch after another from rows in their order; rows that share a key never share a batch.

    A row that does not fit waits, and comes before all later rows in the next batch.

    Args:
        rows: Numbers of the rows.
        keys: Integer keys of the texts of each row, `(all rows, texts)`.
        size: Rows of a batch.

    Attributes:
        left: After the last batch, the rows that are in none, in their order.
    """

    def __init__(self, rows: np.ndarray, keys: np.ndarray, size: int) -> None:
        self.rows, self.keys, self.size = rows, keys, size
        self.left = rows

    def __iter__(self) -> Iterator[list[int]]:
        """Yield full batches until the rows that are left do not fill another one."""
        unread, waiting = iter(range(len(self.rows))), list[int]()
        while True:
            seen: set[int] = set()
            batch: list[int] = []  # places in `rows`, like those that wait
            before, waiting = iter(waiting), []
            for place in chain(before, unread):
                keys = self.keys[self.rows[place]].tolist()
                if not seen.isdisjoint(keys):
                    waiting.append(place)
                    continue
                batch.append(place)
                seen.update(keys)
                if len(batch) == self.size:
                    break
            waiting += before
            if len(batch) < self.size:
                self.left = self.rows[np.array(sorted([*batch, *waiting]), dtype=np.int64)]
                return
            yield self.rows[batch].tolist()


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
        MarError: A column has fewer different keys than a batch has rows.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        *,
        keys: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        groups: int = 0,
        seed: Sequence[int] = (0,),
    ) -> None:
        self.rows, self.batch_size, self.seed = rows, batch_size, list(seed)
        self.keys, self.groups = keys, groups
        self.lengths = lengths if groups else None
        for column in () if keys is None or not len(self) else keys.T:
            # The first rows nearly always suffice.
            if len(np.unique(column[: 16 * batch_size])) >= batch_size:
                continue
            if (distinct := len(np.unique(column))) < batch_size:
                raise _too_few(f"a column of the data holds only {distinct} different texts", batch_size)

    def __len__(self) -> int:
        return self.rows // self.batch_size

    def epoch(self, epoch: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch.

        Raises:
            MarError: There are not enough rows without a common text for a batch.
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
            fitting = None if self.keys is None else FirstFit(pool, self.keys, self.batch_size)
            batches: Iterable[list[int]] = (
                (batch.tolist() for batch in pool.reshape(-1, self.batch_size))
                if fitting is None
                else fitting
            )
            if self.groups:  # in a random order, as they are sorted by length
                made = list(batches)
                batches = (made[index] for index in rng.permutation(len(made)))
            for batch in batches:
                yielded += 1
                yield batch
            waiting = left if fitting is None else np.concatenate([fitting.left, left])
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

    def _missing(self, number: int, waiting: np.ndarray, rng: np.random.Generator) -> Iterator[list[int]]:
        """Yield the last batches of an epoch if rows with equal texts were left over."""
        if number <= 0 or self.keys is None:
            return
        logger.warning_once(
            f"Equal texts must not meet in a batch, so {number} of {len(self)} batches of an epoch are "
            "filled up with rows that were used before."
        )
        for _ in range(number):
            pool = np.concatenate([waiting, self._permutation(rng)])
            batch = next(iter(FirstFit(pool, self.keys, self.batch_size)), None)
            if batch is None:
                raise _too_few("too few rows without a common text were found", self.batch_size)
            waiting = waiting[~np.isin(waiting, batch)]
            yield batch


def _too_few(found: str, batch_size: int) -> MarError:
    return MarError(
        f"Equal texts must not meet in a batch, and {found} for a batch of {batch_size}. Choose a smaller "
        "batch_size."
    )


class TrainBatches(BatchSampler):
    """Batches of several pools of rows in a random order that gives each its share.

    Args:
        plans: The pools.
        seed: Seed of the order.
        world: Processes that take equal slices of a batch. Its rows, which may be sorted by length, are dealt
            out so that each gets short and long ones.
    """

    def __init__(self, plans: Sequence[BatchPlan], seed: int = 0, world: int = 1) -> None:
        super().__init__(range(sum(plan.rows for plan in plans)), plans[0].batch_size, drop_last=True)
        self.plans, self.seed, self.world, self.epoch = plans, seed, world, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(len(plan) for plan in self.plans)

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, *np.cumsum([plan.rows for plan in self.plans]).tolist()]
        turns = np.repeat(np.arange(len(self.plans)), [len(plan) for plan in self.plans])
        np.random.default_rng([self.seed, self.epoch]).shuffle(turns)
        batches = [plan.epoch(self.epoch) for plan in self.plans]
        for turn in turns.tolist():
            rows = [row + starts[turn] for row in next(batches[turn])]
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
        batch_size: Rows per batch, over all processes.
        mixed: Let a batch hold rows of several datasets; otherwise all rows of a batch are of one dataset.
        no_duplicates: Never put rows that share a text, in any column, into the same batch.
        groups: Batches that are sorted by length together; 0 for none.
        document_columns: By dataset, the columns whose longest text is a row's length (characters).
        seed: Seed.
        world: Processes that share a batch.

    Raises:
        MarError: A dataset has fewer rows than a batch and would never be used, or a column with fewer
            different texts than a batch.
    """
    pools = [list(data)] if mixed else [[name] for name in data]
    plans = []
    for index, names in enumerate(pools):
        rows = sum(len(data[name]) for name in names)
        if rows < batch_size:
            what = "all data entries together have" if mixed else f"the data {names[0]!r} have"
            raise MarError(
                f"A batch takes {batch_size} rows and {what} {rows}, so it would never be used. Choose a "
                "smaller batch_size, 'batches: mixed', or leave it out with 'data'."
            )
        columns = {name: (document_columns or {}).get(name) or text_columns(data[name]) for name in names}
        lengths = [
            np.max([column_texts(data[name], column).lengths() for column in columns[name]], axis=0)
            for name in names if groups
        ]  # fmt: skip
        keys = [_keys(data[name]) for name in names if no_duplicates]
        plans.append(
            BatchPlan(
                rows,
                batch_size,
                keys=np.concatenate(keys) if keys else None,
                lengths=np.concatenate(lengths) if lengths else None,
                groups=groups,
                seed=(seed, index),
            )
        )
    return TrainBatches(plans, seed, world)


def text_columns(dataset: datasets.Dataset) -> list[str]:
    """Return the columns of a dataset that hold texts."""
    return [
        name
        for name, feature in dataset.features.items()
        if getattr(feature, "dtype", None) in ("string", "large_string")
        and name not in (*DEFAULT_LABEL_COLUMNS, SOURCE_COLUMN)
    ]


def _keys(dataset: datasets.Dataset) -> np.ndarray:
    """Return the keys of all texts, `(rows, texts)`; equal texts of any dataset have equal keys."""
    columns = [digests(column_texts(dataset, column))[:, 0] for column in text_columns(dataset)]
    return np.stack(columns, axis=1)
