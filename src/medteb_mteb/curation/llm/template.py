"""Prompts by language, from files, with the texts in delimiters that they cannot contain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.llm.client import Prompt, prompt_text, version_of
from medteb_mteb.curation.synthetic.forms import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.synthetic.forms import Language


@dataclass(frozen=True)
class Template:
    """A prompt without its texts.

    Attributes:
        system: The system message by language.
        user: The user message by language; `{word}` is a part of the delimiters.
        schema: JSON schema of the answer.
    """

    system: Mapping[Language, str]
    user: Mapping[Language, str]
    schema: Mapping[str, Any]

    @property
    def version(self) -> str:
        """Return the digest (16 hex digits) of the prompt in all languages."""
        return version_of(*(part for one in self.user for part in (self.system[one], self.user[one])))

    def prompt(
        self,
        key: str,
        language: Language,
        texts: Mapping[str, str],
        tokens: int,
        *,
        about: tuple[str, ...] = (),
        **fields: Any,
    ) -> Prompt:
        """Return a prompt.

        Args:
            key: Key of the prompt.
            language: Its language.
            texts: Texts by field, as given; they are shown as `defused` returns them.
            tokens: Estimated tokens of the answer.
            about: Further texts of persons that are parts of these.
            **fields: Other fields of the user message.
        """
        shown = {field: defused(text) for field, text in texts.items()}
        identity = hashlib.sha256("\0".join((self.version, *shown.values())).encode()).digest()
        word = delimiter(identity, tuple(shown.values()))
        user = self.user[language].format(word=word, **shown, **fields)
        given = (*texts.values(), *about)
        return Prompt(key, self.system[language], user, self.schema, tokens, texts=given)


def template(
    module: str,
    *names: str,
    schema: Mapping[str, Any] | None = None,
    system: str = "system",
    languages: tuple[Language, ...] = LANGUAGES,
) -> Template:
    """Return the template of the files `prompts/NAME-LANGUAGE.txt` beside a module, one after the other.

    Args:
        module: The module's `__file__`.
        *names: Names of the parts of the user message.
        schema: JSON schema of the answer.
        system: Name of the system message.
        languages: Its languages.
    """
    return Template(
        {one: prompt_text(module, f"{system}-{one}").strip() for one in languages},
        {one: "".join(prompt_text(module, f"{name}-{one}") for name in names) for one in languages},
        schema or {},
    )
