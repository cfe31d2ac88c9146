"""What MkDocs does besides building: pages may link to files of the repository, as they do where they are read as plain text.

A picture outside of docs/ becomes part of the site, every other file a link to the repository.
"""

from __future__ import annotations

import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>\.\.?/[^)\s]+)\)")
PICTURES = (".png", ".gif")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with the pictures outside of docs/ that its pages show."""
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(page.content_string):
            place = _outside(page.src_uri, link["target"])
            if link["picture"] and place is not None and files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page, whose links to files outside of docs/ lead to the site's copy or to the repository."""

    def elsewhere(link: re.Match[str]) -> str:
        place = _outside(page.file.src_uri, link["target"])
        if place is None:
            return link[0]
        path, _, fragment = place.partition("#")
        if path.endswith(PICTURES) and link["picture"]:
            target = posixpath.relpath(path, posixpath.dirname(page.file.src_uri) or ".")
        else:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            target = f"{config.repo_url}/{kind}/main/{path}" + (f"#{fragment}" if fragment else "")
        return f"{link['picture']}[{link['text']}]({target})"

    return LINK.sub(elsewhere, markdown)


def _outside(page: str, target: str) -> str | None:
    """Where a link of a page leads in the repository, if that is outside of docs/."""
    place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if place.startswith("docs/") else place
