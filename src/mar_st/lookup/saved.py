"""The files of a saved lookup encoder, read and checked without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.files import read_json
from mar_st.lookup.features import Features, LookupEncoderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: File of the dictionary, a JSON list; beside `config.json` and `model.safetensors`.
DICTIONARY = "features.json"

#: Settings in `config.json`.
CONFIG_KEYS = ["embedding_dimension", "lengths", "max_length", "dictionary"]


def saved_features(
    place: str, config: Mapping[str, Any], dictionary: Path | None, table: tuple[int, ...] | None
) -> Features:
    """Return the dictionary and rules of a saved lookup encoder.

    Args:
        place: Its location, for messages.
        config: Content of `config.json`.
        dictionary: The file `features.json`.
        table: Shape of the table of vectors.

    Raises:
        LookupEncoderError: A file is missing or damaged, or the files do not fit each other.
    """
    if not set(CONFIG_KEYS) <= set(config) or dictionary is None:
        raise LookupEncoderError(f"{place} lacks config.json or {DICTIONARY}; copy the encoder again.")
    numbers = [config["embedding_dimension"], config["max_length"]]
    if isinstance(config["lengths"], list | tuple) and len(config["lengths"]) == 2:
        numbers += config["lengths"]
    if len(numbers) < 4 or not all(type(number) is int for number in numbers):
        raise LookupEncoderError(
            f"config.json of {place} is damaged: embedding_dimension and max_length are whole numbers, and "
            f"lengths are two; got {numbers[0]!r}, {numbers[1]!r} and {config['lengths']!r}. Copy the "
            "encoder again."
        )
    try:
        names = read_json(dictionary)
    except ValueError as error:
        raise LookupEncoderError(f"{place} cannot be read ({error}); copy the encoder again.") from error
    features = Features(names, lengths=tuple(config["lengths"]), max_length=config["max_length"])
    if table != (len(features), config["embedding_dimension"]) or features.digest() != config["dictionary"]:
        raise LookupEncoderError(
            f"{place} is made of files that come from different encoders: {DICTIONARY} has {len(features)} "
            f"features, config.json says {config['embedding_dimension']} dimensions, the table {table}. "
            "Copy the encoder again."
        )
    return features
