"""Commands from settings: each option is declared once, as a field of a pydantic model.

The Python function, the YAML file and the command line share the model. `command` makes a command of it: the
field `batch_size: int = Field(32, ge=1, description="Number of texts per forward pass.")` becomes the option
`--batch-size`, and a field annotated with `Argument()` becomes an argument.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from mar_st.errors import MarError, os_error_message
from mar_st.files import YamlError, parse_yaml, printable, regular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.fields import FieldInfo

__all__ = ["Argument", "FromFile", "Settings", "Switch", "command", "invalid", "read_yaml", "validated"]

S = TypeVar("S", bound="Settings")
_quiet = False


class Settings(BaseModel):
    """Settings of a function, a command or a section of a YAML file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


@dataclass(frozen=True)
class Argument:
    """Marks a field that is an argument on the command line: `Annotated[Path, Argument()]`.

    Attributes:
        metavar: Its name in the help; default: the field's.
        last: It follows all other arguments, also those of subclasses of the settings.
    """

    metavar: str | None = None
    last: bool = False


class Switch:
    """Gives a field another option than its name: `Annotated[list[str], Switch("-s", "--set")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class FromFile:
    """Marks a field that the command line reads from a YAML file: `Annotated[LLM, FromFile()]`."""


def validated(model: type[S], values: Mapping[str, Any], where: str) -> S:
    """Return settings from the values of a file.

    Args:
        model: Class of the settings.
        values: Values by field name or alias.
        where: Where the values come from; it starts the message.

    Raises:
        MarError: Values are invalid, unknown or missing; the message names all of them.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise MarError(f"{where}: {invalid(error)}") from error


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        MarError: It cannot be read, or is not YAML.
    """
    try:
        return parse_yaml(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise MarError(f"{path} cannot be read ({error.strerror}).") from error
    except (YamlError, UnicodeDecodeError) as error:
        raise MarError(f"{path} is not valid YAML ({error}).") from error


def invalid(error: ValidationError, name: Callable[[str], str] = str) -> str:
    """Return the problems that pydantic found, in one line.

    Args:
        error: The error.
        name: Returns a field's name as the user wrote it.
    """
    problems = []
    for detail in error.errors(include_url=False):
        place = name(".".join(str(part) for part in detail["loc"]))
        message = detail["msg"].removeprefix("Value error, ").removesuffix(".")
        shown = not isinstance(detail["input"], list | dict | tuple)  # what they hold may be secret
        if shown and detail["type"] not in ("missing", "value_error", "extra_forbidden"):
            message += f", not {str(detail['input'])[:80]!r}"
        problems.append(f"{place}: {message}" if place else message)
    return "; ".join(problems) + "."


def say(line: str) -> None:
    """Print a line about the progress of a command on stderr; nothing with `--quiet`."""
    if not _quiet:
        typer.echo(shown(line), err=True)


def shown(text: str) -> str:
    """Return a text for a terminal: characters that control it are escaped, lines and tabs stay."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def _hush(quiet: bool) -> None:
    """Set whether progress is printed; commands and libraries show bars on a terminal only."""
    global _quiet
    _quiet = quiet
    if quiet:
        sys.stderr.isatty = lambda: False  # type: ignore[method-assign]


def application(name: str, help_text: str, *, version: bool = False) -> typer.Typer:
    """Return an application without commands; called without arguments, it prints its help.

    Args:
        name: Name of the program.
        help_text: Its help.
        version: Add `--version`.
    """
    app = typer.Typer(
        name=name,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    if version:
        app.callback()(_root)
    return app


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # lazy: importlib.metadata

        typer.echo(f"medteb {version('medteb')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del version


def run(app: typer.Typer, name: str) -> None:
    """Run an application and exit; an error of the user is one line on stderr, with exit code 2."""
    # typer brings its own copy of click in some versions; these are the bases of its errors.
    usage_error = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (typer.Abort, KeyboardInterrupt):
        print(f"{name}: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        message = str(error) if isinstance(error, MarError) else os_error_message(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error))
            sys.exit(0)
        if isinstance(error, usage_error):
            message = error.format_message()  # type: ignore[attr-defined]
        if message is None:
            raise
        print(f"{name}: error: {printable(' '.join(message.split()))}", file=sys.stderr)
        sys.exit(2)


def command(
    app: typer.Typer,
    name: str,
    model: type[S],
    run: Callable[[S], Any],
    *,
    show: Callable[[Any], str] | None = None,
    group: str | None = None,
) -> None:
    """Add a command whose arguments and options are the fields of a model.

    Args:
        app: The application.
        name: Name of the command; its help is the docstring of `run`.
        model: The settings. Fields of type `Path`, `str`, `int`, `float`, `bool` and `Literal`, lists and
            tuples of these, mappings (given as `KEY=VALUE`), and optional ones are options; others can only
            be set in Python and YAML.
        run: Function of the command; what it returns is printed. If that has a true `failed`, the exit code
            is 1.
        show: Returns a result as text; by default YAML.
        group: Heading of the command in the application's help.

    Called without arguments, a command that requires one prints its help. What is printed cannot control the
    terminal.
    """
    kinds = {
        key: Path if _has(field, FromFile) else _kind(field.annotation)
        for key, field in sorted(model.model_fields.items(), key=lambda item: _is_last(item[1]))
    }
    switches = {  # the long name of each option
        key: _switches(model.model_fields[key], f"--{key.replace('_', '-')}")[-1]
        for key, kind in kinds.items()
        if kind is not None
    }

    def called(*, json_output: bool = False, quiet: bool = False, **values: Any) -> None:
        _hush(quiet)
        fields = model.model_fields
        given = {key: _given(fields[key], value) for key, value in values.items() if value is not None}
        try:
            settings = model.model_validate(given)
        except ValidationError as error:
            message = invalid(error, lambda place: switches.get(place.partition(".")[0], place))
            raise typer.BadParameter(message) from error
        with redirect_stdout(sys.stderr) if json_output else nullcontext():  # trainers print their losses
            result = run(settings)
        if json_output:
            print(json.dumps(result, ensure_ascii=False, indent=2, default=_plain))
        elif result is not None:
            print(shown((show or as_yaml)(result)))
        if result.get("failed") if isinstance(result, dict) else getattr(result, "failed", False):
            raise typer.Exit(1)

    parameters = [_parameter(key, model.model_fields[key], kinds[key], switches[key]) for key in switches]
    for key, names, text in (
        ("json_output", ("--json",), "Print the result as JSON."),
        ("quiet", ("-q", "--quiet"), "Print no progress."),
    ):
        flag = Annotated[bool, typer.Option(*names, help=text)]
        parameters.append(Parameter(key, Parameter.KEYWORD_ONLY, default=False, annotation=flag))
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    needs_some = any(field.is_required() for field in model.model_fields.values())
    app.command(name, help=run.__doc__, no_args_is_help=needs_some, rich_help_panel=group)(called)


def _given(field: FieldInfo, value: Any) -> Any:
    """Return the value of an option as the model takes it: files are read, `KEY=VALUE` become a mapping."""
    if _has(field, FromFile):
        return read_yaml(value)
    if dict not in (get_origin(field.annotation), *map(get_origin, get_args(field.annotation))):
        return value
    wrong = next((one for one in value if "=" not in one), None)
    if wrong is not None:
        raise typer.BadParameter(f"expected KEY=VALUE, got {wrong!r}.")
    return {key.strip(): item.strip() for key, _, item in (one.partition("=") for one in value)}


def _is_last(field: FieldInfo) -> bool:
    return any(isinstance(mark, Argument) and mark.last for mark in field.metadata)


def _has(field: FieldInfo, mark: type) -> bool:
    return any(isinstance(one, mark) for one in field.metadata)


def _parameter(key: str, field: FieldInfo, kind: Any, switch: str) -> Parameter:
    """Return a field as typer's parameter; pydantic checks its value and fills in the other defaults."""
    default = field.default if isinstance(field.default, str | int | float | Path) else None
    argument = next((mark for mark in field.metadata if isinstance(mark, Argument)), None)
    info: Any
    if argument is not None:
        info = typer.Argument(help=field.description, metavar=argument.metavar or key.upper())
    elif kind is bool:
        info = typer.Option(f"{switch}/--no-{switch[2:]}" if default else switch, help=field.description)
    else:
        info = typer.Option(*_switches(field, switch), help=field.description)
    if field.is_required():
        return Parameter(key, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])
    given = kind if default is not None else kind | None
    return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[given, info])


def _switches(field: FieldInfo, default: str) -> tuple[str, ...]:
    return next((mark.names for mark in field.metadata if isinstance(mark, Switch)), (default,))


def _kind(annotation: Any) -> Any:
    """Return the type of an option for typer; `None` if a field cannot be an option."""
    if annotation in (str, int, float, bool, Path):
        return annotation
    origin, parts = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return annotation if all(isinstance(part, str) for part in parts) else str
    if origin is dict:
        return list[str]
    if origin in (list, tuple):
        item = str if get_origin(parts[0]) is Literal else _kind(parts[0])  # typer takes no list of choices
        return None if item is None or get_origin(item) is list else list[item]  # type: ignore[valid-type]
    if origin not in (Union, UnionType):
        return None
    kinds = {_kind(part) for part in parts}
    if None in kinds:
        return None
    return kinds.pop() if len(kinds) == 1 else str


def as_yaml(result: Any) -> str:
    """Return a result as YAML, with numbers of six digits."""
    text = json.dumps(result, default=_plain)
    content = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)).strip()


def _plain(value: Any) -> Any:
    """Return JSON of a model, a dataclass, a path or a number of numpy."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return {key: getattr(value, key) for key in value.__dataclass_fields__}
    return value.item() if hasattr(value, "item") else str(value)
