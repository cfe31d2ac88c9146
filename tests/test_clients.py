"""What `make setup` installs: client libraries only with a torch that brings no GPU packages, and a word if there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import install_clients
import pytest

CPU = ["filelock", "sympy>=1.13.3", 'optree>=0.13.0; extra == "optree"']
GPU = [*CPU, 'triton==3.7.0; platform_system == "Linux"', 'nvidia-cublas==13.1; platform_system == "Linux"']


def pip(monkeypatch: pytest.MonkeyPatch, requires: list[str] | None, installs: int = 0) -> list[list[str]]:
    """As if pip found a torch that requires this, or none, and installed with this exit code; the words it is called by."""
    calls: list[list[str]] = []

    def run(words: Any, **options: Any) -> subprocess.CompletedProcess:
        calls.append(list(words))
        if "--dry-run" in words:
            report = "" if requires is None else json.dumps({"install": [{"metadata": {"requires_dist": requires}}]})
            return subprocess.CompletedProcess(words, requires is None, report, "")
        return subprocess.CompletedProcess(words, installs, "", "first\nERROR: no space left\n")

    monkeypatch.setattr(install_clients.subprocess, "run", run)
    return calls


def test_a_small_torch_is_installed_together_with_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pip(monkeypatch, CPU)
    assert install_clients.installed() is None
    assert calls[1][-3:-1] == ["torch==2.13.0", "--editable"] and calls[1][-1].endswith("[all,clients]")


@pytest.mark.parametrize(("requires", "said"), [(GPU, "gigabytes"), (None, "finds no torch==2.13.0")])
def test_otherwise_nothing_is_installed_and_it_says_why(monkeypatch: pytest.MonkeyPatch, requires: Any, said: str) -> None:
    calls = pip(monkeypatch, requires)
    assert said in (install_clients.installed() or "")
    assert len(calls) == 1


def test_a_failure_of_pip_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, CPU, installs=1)
    assert install_clients.installed() == "pip failed: ERROR: no space left"


def test_tests_of_missing_clients_are_left_out_and_the_header_says_so(tmp_path: Path) -> None:
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
import conftest
print(conftest.pytest_report_header(), conftest.collect_ignore)
"""
    words = [sys.executable, "-c", code]
    told = subprocess.run(words, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout
    assert "because of torch" in told and "'test_sb3.py'" in told
