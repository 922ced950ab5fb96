"""Errors for names of commands and options that were renamed: each error gives the new name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Present names of commands, by their former names.
RENAMED_COMMANDS = {
    "index-update": "index update",
    "index-tune": "index tune",
    "index-match": "index match",
}

#: Present names of options, by command and former name.
RENAMED_OPTIONS = {
    ("mine", "--negatives"): "--num-negatives",
    ("mine", "--window"): "--range-min and --range-max (--window 2:50 is --range-min 1 --range-max 50)",
    ("mine", "--margin"): "--absolute-margin",
    ("mine", "--choose"): "--sampling-strategy",
    ("mine", "--precision"): "--dtype (float32 or bfloat16)",
    ("align", "--precision"): "--dtype (float32 or bfloat16)",
    ("export", "--precision"): "--weight-format",
    ("train", "--no-fit"): "--skip-memory-check",
    **{
        (command, "--query"): "--query-encoder"
        for command in ("search", "serve", "export", "index tune", "index match")
    },
}

#: Hints for an invalid value of an option, by command and option.
VALUE_HINTS = {
    ("encode", "--precision"): "The dtype that the model computes in is --dtype (float32 or bfloat16).",
    ("encode", "--dtype"): "The precision of the stored vectors is --precision.",
    ("mine", "--dtype"): "fp32 is float32 and bf16 is bfloat16.",
    ("align", "--dtype"): "fp32 is float32 and bf16 is bfloat16.",
}

#: Former options that are the default now; only their --no-... form exists.
DEFAULT_OPTIONS = {("mine", "--fill"), ("mine", "--keep-labelled"), ("index build", "--bm25")}


class RenamedError(MarError):
    """A command or an option that was renamed; the message gives the new name."""


class RootGroup(TyperGroup):
    """The commands of `mar`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; see click's `Group`.

        Raises:
            RenamedError: The command was renamed.
        """
        if args and args[0] in RENAMED_COMMANDS:
            raise RenamedError(
                f"'mar {args[0]}' is now 'mar {RENAMED_COMMANDS[args[0]]}'; its options are the same."
            )
        return super().resolve_command(ctx, args)


class IndexGroup(TyperGroup):
    """The commands of `mar index`, which was a command itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; see click's `Group`.

        Raises:
            RenamedError: The first argument is not a command of the group.
        """
        if args and args[0] not in self.commands:
            raise RenamedError(_index_commands(self.commands))
        return super().resolve_command(ctx, args)


def _index_commands(commands: Mapping[str, Any]) -> str:
    return (
        f"'mar index' is a group of commands: {', '.join(commands)}. To build an index, run 'mar index build "
        "VECTORS OUT'."
    )


def _command_of(context: Any) -> str:
    """Return the words of a command without the program's name, which can vary."""
    if context.parent is None:
        return ""
    return f"{_command_of(context.parent)} {context.info_name}".strip()


def explain(error: Any) -> str | None:
    """Return the message of a usage error that is due to a renamed option; `None` for other errors.

    Args:
        error: click's exception.
    """
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    command = _command_of(context)
    unknown = getattr(error, "option_name", "")
    if unknown and command == "index":
        return _index_commands(context.command.commands)
    if (command, unknown) in RENAMED_OPTIONS:
        return f"'mar {command}' has no option {unknown}; it is now {RENAMED_OPTIONS[command, unknown]}."
    if (command, unknown) in DEFAULT_OPTIONS:
        return f"'mar {command}' does this by default; leave out {unknown}."
    parameter = getattr(error, "param", None)
    for name in getattr(parameter, "opts", ()):
        if (command, name) in VALUE_HINTS:
            return f"{error.format_message()} {VALUE_HINTS[command, name]}"
    return None
