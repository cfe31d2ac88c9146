"""The command line before any command: help, version, completion."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

import saute
from saute.cli.main import COMMANDS, main
from saute.cli.train import read_train
from saute.envs import make_task


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


def loaded(*words: str) -> set[str]:
    """The packages of other people that a fresh process has loaded once it has shown some help."""
    code = f"""
import contextlib, io, sys
from saute.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({list(words)!r})
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


COSTLY = {"jax", "optax", "tyro", "rich", "scipy", "mujoco", "matplotlib", "PIL", "filelock", "safetensors", "ray", "optuna"}


def test_help_loads_little() -> None:
    assert loaded("--help") & COSTLY == set()
    assert loaded("watch", "--help") & COSTLY == {"tyro"}
    assert loaded("train", "--help") & COSTLY <= {"tyro", "jax", "optax", "filelock"}


def test_help_of_train_reads_only_the_lines_that_say_what_options_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    make_task("pendulum")  # modules that are loaded for the first time are parsed too
    parse, parsed = ast.parse, list[str]()
    monkeypatch.setattr("tokenize.tokenize", None)  # by which tyro reads the source of each class once more
    monkeypatch.setattr("ast.parse", lambda source, *more, **named: parsed.append(source) or parse(source, *more, **named))
    with pytest.raises(SystemExit, match="0"):
        read_train(["--help"], "saute train")
    assert parsed and not any("from __future__" in source for source in parsed), "classes, not the modules that they are in"


def terminal(words: list[str], columns: int = 80) -> str:
    """What a command writes to a terminal of so many columns."""
    ours, theirs = os.openpty()
    known = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    known.pop("NO_COLOR", None)
    subprocess.run([sys.executable, *words], stdout=theirs, stderr=theirs, env=known)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # so ends a terminal
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    return said.decode()


def lines(said: str) -> list[str]:
    """The lines as they are seen, without colours and movements."""
    return re.split("[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said))


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to play here")
def test_help_at_a_terminal_has_colours_and_not_their_codes() -> None:
    said = terminal(["-m", "saute", "pretrained", "--help"])
    assert "\x1b[" in said and r"\x1b[" not in said and "pretrained" in said


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to play here")
@pytest.mark.parametrize("words", [["--help"], ["resume", "a/run/folder/that/nobody/has/made/yet"]])
def test_the_overview_and_errors_fit_into_narrow_terminals(words: list[str]) -> None:
    said = lines(terminal(["-m", "saute", *words], 60))
    assert 50 < max(map(len, said)) <= 60
    assert "train one with saute train" in " ".join(said) or "continue a run folder, bit for bit" in " ".join(said)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to play here")
def test_the_progress_leaves_room_for_what_a_terminal_writes_at_ctrl_c() -> None:
    code = """
import time
from saute.core.progress import Meter, progress
with progress(Meter("epoch", 100)) as meter:
    meter.begin()
    meter.tell(13, ("return 173.7 and so on and so on",))
    time.sleep(0.6)
"""
    widest = max(map(len, lines(terminal(["-c", code], 40))))
    assert 30 < widest <= 40 - len("^C")
