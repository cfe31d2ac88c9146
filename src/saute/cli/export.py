"""`saute export`: a trained policy as one file for programs without saute."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

import saute
from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.core.errors import UserError
from saute.core.files import write_atomically
from saute.core.names import nearest
from saute.core.text import say
from saute.core.typed import rebuilt
from saute.runs.card import beside, certificate_of
from saute.runs.checkpoint import config_digest
from saute.runs.policy import file_of, load_policy
from saute.runs.shield import has_shield
from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.to_c import c_source
from saute.serve.to_numpy import numpy_source
from saute.serve.to_onnx import onnx_bytes

__all__ = ["Export", "export"]


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a trained policy as one file for programs without saute: observation and remaining budget in, action out."""

    run: Annotated[str, shown_as("RUN")]
    """Run folder, policy file, or pretrained:NAME."""
    seed: Annotated[int, shown_as("N")] = 0
    """Whose policy of the run."""
    format: Annotated[str, shown_as("{onnx,c,numpy}")] = "onnx"
    """onnx: a graph; c: one C99 file with begin, act and spend; numpy: one Python file that needs NumPy only."""
    out: Annotated[pathlib.Path | None, shown_as("FILE", "default: policy.onnx, policy.c or policy.py")] = None
    """File to write, which must not exist."""


class Format(NamedTuple):
    """How the names of files end, and what is written into them for a net, facts about it and the discount of its budget."""

    suffix: str
    content: Callable[[Network, Mapping[str, str], float], bytes]


FORMATS = {
    "onnx": Format(".onnx", lambda net, facts, discount: onnx_bytes(net, facts)),
    "c": Format(".c", lambda net, facts, discount: c_source(net, facts, discount).encode()),
    "numpy": Format(".py", lambda net, facts, discount: numpy_source(net, facts, discount).encode()),
}


def export(options: Export) -> None:
    try:
        suffix, content = FORMATS[nearest(options.format, FORMATS, "--format")]
        out = options.out or pathlib.Path(f"policy{suffix}")
        _refuse_place(out, suffix, options.format)
        policy = load_policy(options.run, options.seed)
        if not isinstance(policy.net, Network):
            raise UserError(
                f"{options.run} is a planner (PETS), which imagines and has no net that could be exported; train sac or "
                "mbpo, or let it act with saute.load_policy"
            )
        facts, discount = _facts(options, policy.about)
        written = content(policy.net, facts, discount)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    if has_shield(options.run):
        say(f"note: the shield of {options.run} is not part of {out}; it acts with saute.load_shield only")
    with writing(out):
        write_atomically(out, written)
    about = policy.about
    sizes = {"observations": about.bare, "remaining budgets": about.constraints, "actions": about.actions}
    print(f"wrote {out}, {len(written):,} bytes: " + ", ".join(f"{name} {size}" for name, size in sizes.items()))


def _refuse_place(out: pathlib.Path, suffix: str, form: str) -> None:
    if out.suffix != suffix:
        raise UserError(f"--out {out} has to end in {suffix} for --format {form}")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists; remove it, or choose another place with --out")
    if not out.parent.is_dir():
        raise UserError(
            f"{out.parent}, where {out.name} should go, is not a folder; make it, or choose another place with --out"
        )


def _facts(options: Export, about: Description) -> tuple[dict[str, str], float]:
    """What the file says of itself, and the discount of its budget."""
    file = file_of(options.run)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    config = beside(file.parent / "config.json", former=True)
    discount = rebuilt(float, config.get("discount", 1.0), "discount")
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"{file.parent / 'config.json'}: discount is {discount}, expected 0 to 1")
    kept = {"task": "env", "method": "method", "algorithm": "algo", "budget": "budget", "lowest budget": "lowest_budget"}
    facts = {name: _words(config[key]) for name, key in kept.items() if config.get(key) is not None}
    facts |= {} if about.reference is None else {"reference": _words(about.reference)}
    facts |= {"discount": _words(discount), "seed": str(options.seed), "policy": f"sha256 {digest}"}
    facts |= {"configuration": f"sha256 {config_digest(config)}"} if config else {}
    if certificate := certificate_of(options.run, digest):
        facts["certificate"] = str(certificate.get("statement"))
    return facts | {"written by": f"saute {saute.__version__}"}, discount


def _words(value: object) -> str:
    """A value of a configuration as on the command line: 30, or 30 5 for two constraints."""
    return " ".join(
        f"{one:g}" if isinstance(one, float) else str(one) for one in (value if isinstance(value, list | tuple) else [value])
    )
