"""The card of a run that is shared: what it is, what its certificate proves, and how to use it; needs no JAX."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import saute
from saute.core.errors import UserError
from saute.core.files import CheckpointError, read_sealed
from saute.core.tables import markdown
from saute.core.text import escaped, say
from saute.runs.pretrained import place_of

__all__ = ["beside", "card", "certificate_of"]

Entries = Mapping[str, Any]


def beside(file: pathlib.Path, former: bool = False) -> dict[str, Any]:
    """The entries of a sealed file, if it is there."""
    try:
        return read_sealed(file, former)
    except FileNotFoundError:
        return {}
    except CheckpointError as problem:
        raise UserError(str(problem)) from problem


def certificate_of(run: str | pathlib.Path, policy: str, shield: str | None = None) -> dict[str, Any]:
    """The certificate of a run, if it is of the policies, and of the shield, with these digests.

    One of others is left out, which is said.
    """
    certificate = beside(place_of(run) / ("" if shield is None else "shielded") / "certificate.json")
    origin = certificate.get("provenance", {})
    known = isinstance(origin, dict) and origin.get("policy") == policy and shield in (None, origin.get("shield"))
    if certificate and not known:
        say("note: the certificate of this run is of other policies, and is left out; renew it with saute certify")
        return {}
    return certificate


def card(name: str, address: str, config: Entries, certificate: Entries, policy: str, pictured: bool) -> str:
    """The page, in Markdown, with the head that the Hugging Face hub reads."""
    parts = [
        _head(config),
        f"# {escaped(name)}",
        _what(config),
        "## What it proves",
        *(_proof(certificate, pictured) if certificate else ["It is not certified. Test it yourself: `saute certify FOLDER`."]),
        "## Use",
        _use(address, config),
        f"The policies are `policy.safetensors`, SHA-256 `{policy}`; every number that shaped them is in `config.json`. "
        f"Nothing here is code, and reading it runs none. Written by saute {saute.__version__}.\n",
    ]
    return "\n\n".join(parts)


def _head(config: Entries) -> str:
    """The tags, in JSON, which is YAML that nothing can break out of."""
    own = [re.sub(r"[^\w.:/-]+", "-", _text(config, key)) for key in ("env", "algo")]
    tags = ["reinforcement-learning", "safe-reinforcement-learning", "saute", *own]
    return f"---\nlibrary_name: saute\npipeline_tag: reinforcement-learning\ntags: {json.dumps(tags)}\n---"


def _what(config: Entries) -> str:
    rows = [["", ""]]
    said = {"task": "env", "method": "method", "algorithm": "algo", "budget of an episode": "budget", "seeds": "seeds"}
    rows += [[name, escaped(_text(config, key))] for name, key in said.items() if config.get(key) is not None]
    if config.get("lowest_budget") is not None:
        rows.append(["budgets of training", escaped(f"from {_text(config, 'lowest_budget')} to {_text(config, 'budget')}")])
    return markdown(rows)


def _proof(certificate: Entries, pictured: bool) -> list[str]:
    """The statement, every seed in a row, and the conditions."""
    try:
        each, origin = certificate.get("each", []), certificate["provenance"]
        cost = "largest share of a budget, mean" if each else "mean cost"
        rows = [["", "episodes", "violated", "P(violation) ≤", cost, "worst"]]
        rows += [_row(one) for one in (*certificate["seeds"], certificate["pooled"])]
        date, version = escaped(str(origin["date"])), escaped(str(origin["saute"]))
        tested = (
            f"At {100 * certificate['confidence']:g} % confidence. Deterministic policies, on starts from seed "
            f"{int(certificate['evaluation_seed'])} that training never saw; tested on {date} with saute {version}."
        )
        notes = [_alone(i, one) for i, one in enumerate(each)] + [escaped(str(note)) for note in certificate["notes"]]
        says = f"**{escaped(str(certificate['statement']))}.**"
    except (KeyError, TypeError, ValueError) as problem:
        raise UserError(f"the certificate cannot be read ({problem!r}); renew it with saute certify") from None
    picture = ["![Returns and costs of every seed](certificate-box.png)"] if pictured else []
    return [says, markdown(rows), tested, *picture, "\n".join(f"- {note}" for note in notes)]


def _row(one: Entries) -> list[str]:
    """The episodes of one seed, or of all."""
    counts = str(int(one["episodes"])), str(int(one["violations"]))
    return [escaped(str(one["name"])), *counts, f"{100 * one['bound']:.3g} %", f"{one['mean']:.4g}", f"{one['worst']:.4g}"]


def _alone(number: int, one: Entries) -> str:
    """What is proved of one of several constraints."""
    pooled = one["pooled"]
    return (
        f"Constraint {number}, budget {one['budget']:g}: {int(pooled['violations'])} of {int(pooled['episodes'])} episodes, so "
        f"P(violation) ≤ {100 * pooled['bound']:.3g} % at {100 * one['confidence']:g} % confidence."
    )


def _use(address: str, config: Entries) -> str:
    needs = "pip install saute" + (" huggingface_hub" if address.startswith("hf://") else "")
    budget = config.get("budget")
    known = all(isinstance(one, int | float) for one in (budget if isinstance(budget, list) else [budget]))
    begin = json.dumps(budget) if known else "30.0"
    code = (
        f"import saute\n\nkeeper = saute.BudgetedPolicy(saute.load_policy({json.dumps(address)}, seed=0))\n"
        f"keeper.begin({begin})\n"
        "action = keeper.act(obs)  # an observation of the bare environment\nkeeper.spend(cost)  # what the step has cost"
    )
    return f"```bash\n{needs}\n```\n\n```python\n{code}\n```"


def _text(config: Entries, key: str) -> str:
    """A value as on the command line: 30, or 30 5 for two constraints."""
    value = config.get(key)
    parts = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in parts)
