"""Reading YAML that may come from an untrusted source."""

from __future__ import annotations

import re
from typing import Any

import yaml

from mar_st.files.reading import one_line

__all__ = ["YamlError", "parse_yaml"]


_SURROGATE = re.compile("[\\ud800-\\udfff]")


class YamlError(ValueError):
    """A text that is not YAML; the message says why, in one line."""


class _Loader(yaml.SafeLoader):
    """Refuses repeated keys, of which PyYAML would silently keep the last, and halves of surrogate pairs."""

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and _SURROGATE.search(value):
            try:  # JSON escapes a character beyond U+FFFF as a pair, which PyYAML does not join
                return value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError as error:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{ascii(value)[:80]} holds half of a surrogate pair", node.start_mark
                ) from error
        return value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} occurs twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text: plain values, lists and mappings.

    Raises:
        YamlError: The text is not YAML, is nested too deeply, has a key twice, or holds an impossible number
            or date, or half of a surrogate pair.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except RecursionError as error:
        raise YamlError("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError) as error:
        raise YamlError(one_line(error)) from error
