"""Runs on the Hugging Face hub, hf://OWNER/NAME or hf://OWNER/NAME@REVISION: fetched as data, of which nothing is run."""

from __future__ import annotations

import os
import pathlib
import re
from typing import NamedTuple

from saute.core.extras import needed
from saute.core.files import CheckpointError

__all__ = ["FILES", "HUB", "Repository", "fetched", "repository", "upload"]

FILES = ("README.md", "config.json", "policy.safetensors", "shield.safetensors", "certificate.json", "certificate-box.png")
"""What a shared run has; nothing else is fetched."""
HUB = "hf:/"
# A path of the command line has lost one of the slashes.
ADDRESS = re.compile(r"hf:/{1,2}(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


class Repository(NamedTuple):
    """A run on the hub."""

    name: str
    """OWNER/NAME."""
    revision: str | None
    """A branch, a tag or a commit; None for the newest one."""


def repository(run: str | os.PathLike[str]) -> Repository | None:
    """The repository that hf://OWNER/NAME names; None for every other path.

    Example:
        >>> repository("hf://somebody/pendulum@v1")
        Repository(name='somebody/pendulum', revision='v1')
        >>> repository("runs/a") is None
        True
    """
    text = os.fspath(run)
    if not text.startswith(HUB):
        return None
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no address on the hub; write hf://OWNER/NAME, or hf://OWNER/NAME@REVISION")
    return Repository(found["name"], found["revision"])


def fetched(asked: Repository) -> pathlib.Path:
    """The folder with the files of a run on the hub, which are fetched unless they are here already."""
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(_needed(asked, missing), name=missing.name) from None
    try:
        return pathlib.Path(snapshot_download(asked.name, revision=asked.revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as problem:
        raise CheckpointError(
            f"hf://{asked.name} cannot be fetched ({type(problem).__name__}); check the name and the network, and log in "
            "with hf auth login if it is private"
        ) from problem


def upload(folder: pathlib.Path, asked: Repository, private: bool) -> str:
    """Make the repository if it is missing, and give it the files of a folder; its address."""
    try:
        from huggingface_hub import HfApi
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(_needed(asked, missing), name=missing.name) from None
    api = HfApi()
    address = api.create_repo(asked.name, private=private, exist_ok=True)
    api.upload_folder(
        repo_id=asked.name, folder_path=folder, revision=asked.revision, allow_patterns=list(FILES), commit_message="saute push"
    )
    return str(address)


def _needed(asked: Repository, missing: ModuleNotFoundError) -> str:
    return needed(f"hf://{asked.name}", missing) or str(missing)
