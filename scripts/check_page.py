"""Writes the outputs of `saute check` into docs/your_task.md, between its marks; only the speeds change from run to run."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shlex

from saute.cli.main import main

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "your_task.md"
BEGIN, END = "<!-- saute check: begin -->", "<!-- saute check: end -->"
COMMANDS = (
    "saute check saute/SafePendulum-v0",
    "saute check own_costs:Velocity-v0 --episodes 10 --seconds 120",
    "saute check Pendulum-v1 --cost own_costs:upright_speed",
    "saute check own_costs:Warehouse-v0 --cost costs.noise costs.wear",
    "saute check Hopper-v5 --episodes 20",
)


def output(command: str) -> str:
    """What a command prints, errors too."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        main(shlex.split(command)[1:])
    return printed.getvalue().rstrip()


def page(text: str, outputs: dict[str, str]) -> str:
    """The page with these outputs between its marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    blocks = [f"```console\n$ {command}\n{printed}\n```" for command, printed in outputs.items()]
    return "\n\n".join([before + BEGIN, *blocks, END + after])


if __name__ == "__main__":
    os.chdir(ROOT / "examples")
    PAGE.write_text(page(PAGE.read_text(), {command: output(command) for command in COMMANDS}))
