"""`saute export`: a trained policy as one file for programs without saute."""

from __future__ import annotations

import dataclasses
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
from saute.runs.shield import digest_of, file_of_shield, has_shield, load_shield
from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.shield import Shield
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
    shield: bool = False
    """Whether the shield of the run is part of the file; saute shield makes it."""


class Format(NamedTuple):
    """How the names of files end, and what is written for a net, facts about it, the discount of its budget and a shield."""

    suffix: str
    content: Callable[[Network, Mapping[str, str], float, Shield | None], bytes]


FORMATS = {
    "onnx": Format(".onnx", lambda net, facts, discount, shield: onnx_bytes(net, facts, shield)),
    "c": Format(".c", lambda net, facts, discount, shield: c_source(net, facts, discount, shield).encode()),
    "numpy": Format(".py", lambda net, facts, discount, shield: numpy_source(net, facts, discount, shield).encode()),
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
        shield = load_shield(options.run) if options.shield else None
        facts, discount = _facts(options, policy.about, shield)
        if shield is not None:
            shield.refuse_other(policy, discount)
        written = content(policy.net, facts, discount, shield)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    if shield is None and has_shield(options.run):
        say(f"note: the shield of {options.run} is not part of {out}; add --shield to have it step in there too")
    with writing(out):
        write_atomically(out, written)
    about = policy.about
    budgets = about.constraints if shield is None else len(shield.reference)
    sizes = {"observations": about.bare, "remaining budgets": budgets, "actions": about.actions}
    told = ", ".join(f"{name} {size}" for name, size in sizes.items())
    print(f"wrote {out}, {len(written):,} bytes: {told}" + ("" if shield is None else ", with its shield"))


def _refuse_place(out: pathlib.Path, suffix: str, form: str) -> None:
    if out.suffix != suffix:
        raise UserError(f"--out {out} has to end in {suffix} for --format {form}")
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists; remove it, or choose another place with --out")
    if not out.parent.is_dir():
        raise UserError(
            f"{out.parent}, where {out.name} should go, is not a folder; make it, or choose another place with --out"
        )


def _facts(options: Export, about: Description, shield: Shield | None) -> tuple[dict[str, str], float]:
    """What the file says of itself, and the discount of its budget."""
    file = file_of(options.run)
    digest = digest_of(file)
    config = beside(file.parent / "config.json", former=True)
    discount = rebuilt(float, config.get("discount", 1.0), "discount")
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"{file.parent / 'config.json'}: discount is {discount}, expected 0 to 1")
    kept = {"task": "env", "method": "method", "algorithm": "algo", "budget": "budget", "lowest budget": "lowest_budget"}
    facts = {name: _words(config[key]) for name, key in kept.items() if config.get(key) is not None}
    reference = about.reference if shield is None else tuple(map(float, shield.reference))
    facts |= {} if reference is None else {"reference": _words(reference)}
    facts |= {"discount": _words(discount), "seed": str(options.seed), "policy": f"sha256 {digest}"}
    facts |= {"configuration": f"sha256 {config_digest(config)}"} if config else {}
    known = None if shield is None else digest_of(file_of_shield(options.run))
    if shield is not None:
        facts |= {"shield": f"sha256 {known}", "margin of the shield": _words(shield.margin)}
    if certificate := certificate_of(options.run, digest, known):
        facts["certificate"] = str(certificate.get("statement"))
    return facts | {"written by": f"saute {saute.__version__}"}, discount


def _words(value: object) -> str:
    """A value of a configuration as on the command line: 30, or 30 5 for two constraints."""
    return " ".join(
        f"{one:g}" if isinstance(one, float) else str(one) for one in (value if isinstance(value, list | tuple) else [value])
    )
