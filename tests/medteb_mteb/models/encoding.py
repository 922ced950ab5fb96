"""Encodes texts as mteb does for a task."""

from __future__ import annotations

import mteb
from datasets import Dataset
from torch.utils.data import DataLoader


def loader(texts: list[str], **columns) -> DataLoader:
    return DataLoader(Dataset.from_dict({"text": texts, **columns}), batch_size=2)


def encode(encoder, texts, task="MedTEBRetrieval", role=None, **columns):
    where = {"task_metadata": mteb.get_task(task).metadata, "hf_split": "test", "hf_subset": "default"}
    return encoder.encode(loader(texts, **columns), prompt_type=role, show_progress_bar=False, **where)
