"""The command line before any command: help, version, completion."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

import saute
from saute.cli.main import COMMANDS, main


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == main([]) == 0
    assert capsys.readouterr().out.count("continue a run folder") == 2
    with pytest.raises(SystemExit, match="0"):
        main(["help", "pretrained"])
    assert "usage: saute pretrained" in capsys.readouterr().out
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"saute {saute.__version__}\n"
    assert main(["help", "tran"]) == 2 and "did you mean 'train'?" in capsys.readouterr().err


def test_a_command_without_words_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train"])
    assert "Missing from saute train" in capsys.readouterr().err


def test_bash_completes_commands_and_options(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "saute"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        found = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        code = f'{found}; eval "$(complete -p saute | sed "s/.*-F //; s/ .*//")"; echo "${{COMPREPLY[@]}}"'
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True).stdout.split()

    assert completed("saute", "cer") == ["certify"] and completed("saute", "certify", "--conf") == ["--confidence"]
    assert "--settings.target-kl" in completed("saute", "train", "pendulum", "--settings.")


def test_fish_and_zsh_know_every_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, option in (("fish", "-l settings.target-kl"), ("zsh", "--settings.target-kl")):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert option in script and all(name in script for name in COMMANDS)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to play here")
def test_help_at_a_terminal_has_colours_and_not_their_codes() -> None:
    ours, theirs = os.openpty()
    words, known = [sys.executable, "-m", "saute", "pretrained", "--help"], {**os.environ, "TERM": "xterm-256color"}
    known.pop("NO_COLOR", None)
    subprocess.run(words, stdout=theirs, stderr=theirs, check=True, env=known)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # so ends a terminal
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert b"\x1b[" in said and rb"\x1b[" not in said and b"pretrained" in said
