"""A report as one HTML file that needs nothing else: facts in, a page out; the charts are drawn by Bokeh's library."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.util
import json
import pathlib
from importlib import resources
from typing import Any

from saute.core.text import shown

__all__ = ["as_data", "library", "page"]

LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
"""Its files, which begin with their licence."""


def page(facts: dict[str, Any]) -> str:
    """The page; only the scripts that it was made with can run in it, and it may ask no other machine for anything."""
    style, script, frame = (_template(name) for name in ("report.css", "report.js", "report.html"))
    scripts = [*library(), script]
    digests = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    asks = " connect-src 'self';" if facts.get("live") else ""
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; media-src data:;{asks} "
        "base-uri 'none'; form-action 'none'"
    )
    said = [
        f"<p>{html.escape(run['name'])}: {html.escape(run.get('statement') or run['status'])}.</p>" for run in facts["runs"]
    ]
    return frame.format(
        policy=policy,
        title=html.escape(shown(facts["title"])),
        style=style,
        verdicts="".join(said),
        facts=as_data(facts),
        scripts="\n".join(f"<script>{one}</script>" for one in scripts),
    )


def as_data(facts: dict[str, Any]) -> str:
    """JSON inside a page: no text in it can end the element or begin another."""
    text = json.dumps(facts, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def library() -> list[str]:
    """The charting library, from the package of Bokeh, of which no code is run here."""
    found = importlib.util.find_spec("bokeh")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'bokeh'", name="bokeh")
    place = pathlib.Path(found.origin).parent / "server" / "static" / "js"
    return [(place / name).read_text(encoding="utf-8") for name in LIBRARY]


def _template(name: str) -> str:
    return resources.files("saute.evidence").joinpath("templates", name).read_text(encoding="utf-8")
