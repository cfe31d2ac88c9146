"""Every link of the built site leads somewhere: `python scripts/check_site.py site`.

Inside the site the file and its anchor have to exist; links into this repository have to name a file of it; of all others only
the form is checked, since that needs no network.
"""

from __future__ import annotations

import html.parser
import os
import pathlib
import posixpath
import sys
from urllib.parse import unquote, urlsplit

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMS = ("http", "https", "mailto")


def main(site: pathlib.Path) -> int:
    problems, links = check(site, repository())
    print(*problems, f"{links} links, {len(problems)} broken", sep="\n")
    return bool(problems)


def repository() -> str:
    """The address that the site has for this repository."""
    return os.environ.get("SAUTE_HOME", "https://example.org/saute")


def check(site: pathlib.Path, home: str) -> tuple[list[str], int]:
    """What is broken, one line each, and how many links there are."""
    pages = {page.relative_to(site).as_posix(): read(page) for page in sorted(site.rglob("*.html"))}
    links = [(page, link) for page, (_, found) in pages.items() for link in sorted(found)]
    problems = [f"{page}: {link}: {why}" for page, link in links if (why := trouble(site, pages, page, link, home))]
    return problems, len(links)


def trouble(site: pathlib.Path, pages: dict[str, tuple[set[str], set[str]]], page: str, link: str, home: str) -> str | None:
    """Why a link of a page is broken, if it is."""
    parts = urlsplit(link)
    if link.startswith((f"{home}/blob/main/", f"{home}/tree/main/")):
        place = unquote(parts.path).split("/main/", 1)[1]
        return None if (ROOT / place).exists() else "no such file in the repository"
    if parts.scheme or parts.netloc:
        whole = parts.scheme in FORMS and (parts.netloc or parts.scheme == "mailto") and " " not in link
        return None if whole else "is not an address"
    if page == "404.html":
        return None  # its links are absolute ones of the place where the site will stand
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    file = site / target / "index.html" if (site / target).is_dir() else site / target
    if not file.is_file():
        return "no such page"
    name = file.relative_to(site).as_posix()
    if parts.fragment and name in pages and unquote(parts.fragment) not in pages[name][0]:
        return "no such place in that page"
    return None


def read(page: pathlib.Path) -> tuple[set[str], set[str]]:
    """The anchors of a page, and its links."""
    reader = Reader()
    reader.feed(page.read_text())
    return reader.anchors, reader.links


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.links |= {given[name] for name in ("href", "src") if name in given and not given[name].startswith("data:")}


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
