"""The repository's address goes into packages that are built where it is known, as by the release workflow: SAUTE_HOME.

PyPI shows the README without the files that it links to, so its links become absolute there. Nothing in the repository says
where it is published, so that nobody is led to a place that is not theirs, and a fork publishes its own address.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|mailto:|#)(?P<place>[^)\s]+)\)")


class Address(MetadataHookInterface):
    """Readme and addresses of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        home, text = os.environ.get("SAUTE_HOME"), (ROOT / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": text if home is None else linked(text, home)}
        metadata["urls"] = {} if home is None else addresses(home)


def addresses(home: str) -> dict[str, str]:
    """What PyPI shows beside the README."""
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/main/docs",
        "Issues": f"{home}/issues",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
    }


def linked(text: str, home: str) -> str:
    """A page with its links to files of the repository made absolute."""

    def absolute(link: re.Match[str]) -> str:
        path = ROOT / link["place"].partition("#")[0]
        kind = "raw" if link["picture"] else "tree" if path.is_dir() else "blob"
        return f"{link['picture']}[{link['text']}]({home}/{kind}/main/{link['place']})"

    return LINK.sub(absolute, text)
