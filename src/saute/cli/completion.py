"""`saute completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import operator
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import tyro

from saute.cli.main import COMMANDS
from saute.cli.sweep import sweep_options
from saute.cli.train import train_options

__all__ = ["Completion", "completion"]


@dataclasses.dataclass(frozen=True)
class Completion:
    """Print the completion of commands and options for a shell; keep it where the shell looks for it.

    saute completion bash > ~/.local/share/bash-completion/completions/saute

    saute completion zsh > ~/.zfunc/_saute, with fpath+=~/.zfunc before compinit in ~/.zshrc

    saute completion fish > ~/.config/fish/completions/saute.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.arg(metavar="{bash,zsh,fish}")]
    """The shell."""


def completion(options: Completion) -> None:
    print("\n".join(_fish()) if options.shell == "fish" else _of_tyro(options.shell))


def _kinds() -> dict[str, Any]:
    """The options of every command as a class; those of training with the settings of its usual learner."""
    made = {"train": train_options([])[0], "sweep": sweep_options()}
    others = {name: it for name, it in COMMANDS.items() if name not in made}
    return made | {name: getattr(importlib.import_module(it.module), it.options) for name, it in others.items()}


def _of_tyro(shell: str) -> str:
    """What tyro writes for one program with all commands; it knows bash and zsh."""
    named = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in _kinds().items()]
    words, written = ["--tyro-print-completion", shell], io.StringIO()
    any_of: Any = functools.reduce(operator.or_, named)
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        tyro.cli(any_of, args=words, prog="saute", config=(tyro.conf.PositionalRequiredArgs,))
    return written.getvalue()


def _fish() -> Iterator[str]:
    """Commands first, then the options of the command that is there; files wherever there is nothing else to offer."""
    for name, command in COMMANDS.items():
        yield f"complete -c saute -n __fish_use_subcommand -f -a {name} -d {_quoted(command.summary)}"
    for name, kind in _kinds().items():
        for flag in _flags(kind):
            yield f"complete -c saute -n '__fish_seen_subcommand_from {name}' -l {flag}"


def _flags(kind: Any, prefix: str = "") -> Iterator[str]:
    """The names of the options of a dataclass, dotted where one is in another; what has to be given has none."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        own, *extras = typing.get_args(hints[field.name]) if hasattr(hints[field.name], "__metadata__") else [hints[field.name]]
        hidden = any(getattr(extra, "name", None) == "" for extra in extras)
        if dataclasses.is_dataclass(own):
            yield from _flags(own, prefix if hidden else f"{prefix}{field.name}.")
        elif field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
            yield f"{prefix}{field.name}".replace("_", "-")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
