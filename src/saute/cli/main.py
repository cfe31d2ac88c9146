"""The command line: finds the command, reads its options, and tells users what went wrong without a traceback."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TextIO, cast

import gymnasium as gym

import saute
from saute.core.errors import UserError
from saute.core.extras import needed
from saute.core.names import nearest
from saute.core.stopping import last_words, obedient, stopped_by
from saute.core.tables import room
from saute.core.text import columns_of, shown, wrapped

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """A command is a dataclass of its options and a function of it; the module is loaded when the command is chosen."""

    module: str
    options: str
    function: str
    summary: str


COMMANDS = {
    "check": Command(
        "saute.cli.check", "Check", "check", "look at an environment: its costs, speed, a budget, an unsafe reward"
    ),
    "envs": Command("saute.cli.envs", "Envs", "envs", "tasks that come with the package"),
    "train": Command("saute.cli.train", "Train", "train", "train several seeds of a method into a run folder"),
    "resume": Command("saute.cli.train", "Resume", "resume", "continue a run folder, bit for bit"),
    "runs": Command("saute.cli.runs", "Runs", "runs", "list run folders: how far they are, what they came to, where they run"),
    "evaluate": Command("saute.cli.evaluate", "Evaluate", "evaluate_runs", "returns, costs and violations of trained policies"),
    "certify": Command(
        "saute.cli.certify", "Certify", "certify", "what fresh episodes prove about the budget, with exact bounds"
    ),
    "plot": Command("saute.cli.plot", "Plot", "plot", "box plots, training curves, distributions of costs, trajectories"),
    "report": Command(
        "saute.cli.report", "Report", "report", "one page to show around: verdict, bounds, curves, film, every budget"
    ),
    "reproduce": Command(
        "saute.cli.reproduce", "Reproduce", "reproduce", "figures and tables of the paper, from training to pictures"
    ),
    "sweep": Command("saute.cli.sweep", "Sweep", "sweep", "search settings: the best return of those that are safe enough"),
    "pretrained": Command("saute.cli.pretrained", "Pretrained", "pretrained", "trained policies that come with the package"),
    "export": Command("saute.cli.export", "Export", "export", "write a trained policy as one file: ONNX, C or NumPy"),
    "push": Command("saute.cli.push", "Push", "push", "share a run: a folder, or the Hugging Face hub, with a model card"),
    "shield": Command("saute.cli.shield", "ShieldRun", "shield", "learn a shield for a run: a backup and when it has to act"),
    "watch": Command("saute.cli.watch", "Watch", "watch", "write a film of an episode, with a gauge of the remaining budget"),
    "completion": Command(
        "saute.cli.completion", "Completion", "completion", "completion of commands and options for bash, zsh or fish"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for what the user can put right, or 128 and the signal that stopped it."""
    if arguments is not None:
        return _main(list(arguments))
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that are begun from here do not search the current folder first, either
    return obedient(lambda: _main(sys.argv[1:]))


def _main(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where a terminal has no ≤, it is spelt out
    try:
        _told(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        if not stopped_by():
            print(last_words(), file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone, as `| head` does.
        return _silenced(141)
    except OSError as error:
        if os.environ.get("SAUTE_TRACEBACK"):
            raise
        _complain(UserError(f"cannot read or write {error.filename or 'the output'} ({error.strerror or error})"))
        return _silenced(2)
    except ModuleNotFoundError as missing:
        if os.environ.get("SAUTE_TRACEBACK"):
            raise
        if not stopped_by():
            _complain(UserError(needed(f"saute {words[0]}", missing) or str(missing)))
        return 2
    except (UserError, gym.error.DependencyNotInstalled) as error:
        if os.environ.get("SAUTE_TRACEBACK"):
            raise
        if not stopped_by():
            _complain(error)
        return 2
    return 0


def _told(words: list[str]) -> None:
    """What was asked for: the overview, the version, or a command."""
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
    elif words[0] == "--version":
        print(f"saute {saute.__version__}")
    else:
        _run(words[0], words[1:])


class _Printed:
    """The standard output, on which texts from files are printed, and never obeyed as commands to the terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(shown(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _silenced(code: int) -> int:
    """The exit code, after which what is still to be written goes nowhere."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return code
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(name: str, words: list[str]) -> None:
    try:
        command = COMMANDS[nearest(name, COMMANDS, "command")]
    except ValueError as error:
        raise UserError(f"{error}; see saute --help") from error
    import tyro

    module = importlib.import_module(command.module)
    reader = getattr(module, f"read_{name}", None)
    if reader is not None:
        options = reader(words, f"saute {name}")
    else:
        config = (tyro.conf.PositionalRequiredArgs,)
        options = tyro.cli(getattr(module, command.options), args=words, prog=f"saute {name}", config=config)
    with contextlib.redirect_stdout(cast(TextIO, _Printed(sys.stdout))):
        getattr(module, command.function)(options)


def _overview() -> str:
    options = {
        "--help": "show this, or with a command its options: saute watch --help, or saute help watch",
        "--version": "show the version",
    }
    return "\n".join(
        [
            "usage: saute COMMAND [OPTIONS]",
            "",
            wrapped(saute.__doc__ or "", room()),
            "",
            "commands:",
            *_listed({name: command.summary for name, command in COMMANDS.items()}),
            "",
            "options:",
            *_listed(options),
        ]
    )


def _listed(texts: Mapping[str, str]) -> list[str]:
    """Names, and beside them what they are, in lines that fit into the terminal."""
    widest = max(map(len, texts))
    return [wrapped(f"  {name:<{widest}}  {text}", room(), " " * (widest + 4)) for name, text in texts.items()]


def _complain(error: Exception) -> None:
    said = "; ".join([str(error), *getattr(error.__cause__, "__notes__", ())])
    message = wrapped(f"error: {shown(said)}", columns_of(sys.stderr))
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(message.replace("error:", "\033[1;31merror:\033[0m", 1) if coloured else message, file=sys.stderr)
