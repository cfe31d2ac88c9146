"""`saute push`: a run as a folder that others can load, with a card that says what it is and what it proves."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import tempfile
from typing import Annotated

from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.core.errors import UserError
from saute.core.files import opened, write_atomically, write_sealed
from saute.runs.card import beside, card, certificate_of
from saute.runs.hub import FILES, Repository, repository, upload
from saute.runs.policy import file_of, stored
from saute.runs.pretrained import place_of
from saute.runs.shield import file_of_shield, has_shield, stored_shield

__all__ = ["Push", "push"]


@dataclasses.dataclass(frozen=True)
class Push:
    """Share a run, as a folder that others can load or on the Hugging Face hub: card, certificate, settings, policies."""

    run: Annotated[str, shown_as("RUN")]
    """Run folder, or pretrained:NAME."""
    to: Annotated[str, shown_as("FOLDER|hf://OWNER/NAME")]
    """A folder that does not exist or is empty, or a repository on the hub, where you are logged in (hf auth login)."""
    private: bool = False
    """Make a new repository on the hub private."""


def push(options: Push) -> None:
    try:
        shared = repository(options.to)
        if shared is not None:
            _to_hub(options, shared)
            return
        out = pathlib.Path(options.to)
        _refuse_place(out)
        with writing(out, "FOLDER"):
            out.mkdir(parents=True, exist_ok=True)
        written = _write(options.run, out, out.resolve().name)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    print(f"wrote {out}: {', '.join(written)}\nload it with saute.load_policy({str(out)!r})")


def _to_hub(options: Push, shared: Repository) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, address = pathlib.Path(folder), f"hf://{shared.name}"
        written = _write(options.run, place, address)
        try:
            where = upload(place, shared, options.private)
        except OSError as problem:
            raise UserError(
                f"{address} cannot be written ({type(problem).__name__}); check the name and the network, and log in with "
                "hf auth login"
            ) from problem
    print(f"wrote {where}: {', '.join(written)}\nload it with saute.load_policy({address!r})")


def _refuse_place(out: pathlib.Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()) or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"{out} exists; name a folder that does not, or an empty one")


def _write(run: str, out: pathlib.Path, address: str) -> list[str]:
    """The files of a run that is whole, its card last; their names."""
    stored(run)  # what is damaged, or not a policy, is not shared
    file = file_of(run)
    config = beside(file.parent / "config.json", former=True)
    if not config:
        raise UserError(f"{run} is not a run folder (it has no config.json); train one with saute train")
    policies = _content(file)
    digest = hashlib.sha256(policies).hexdigest()
    certificate = certificate_of(run, digest)
    picture = place_of(run) / "certificate-box.png"
    pictured = bool(certificate) and picture.is_file()
    with writing(out, "FOLDER"):
        write_sealed(out / "config.json", config)
        write_atomically(out / "policy.safetensors", policies)
        if has_shield(run):
            stored_shield(run)
            write_atomically(out / "shield.safetensors", _content(file_of_shield(run)))
        if certificate:
            write_sealed(out / "certificate.json", certificate)
        if pictured:
            write_atomically(out / "certificate-box.png", _content(picture))
        page = card(pathlib.Path(address).name, address, config, certificate, digest, pictured)
        write_atomically(out / "README.md", page.encode(errors="backslashreplace"))
    return [name for name in FILES if (out / name).exists()]


def _content(file: pathlib.Path) -> bytes:
    with opened(file) as (content, _):
        return content.read()
