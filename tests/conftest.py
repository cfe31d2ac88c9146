"""Tests compile many small programs, often the same one: each is compiled once per run of the tests, and quickly."""

from __future__ import annotations

import os
import shutil
import tempfile

MADE = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="saute-tests-")
"""What the first process makes, the others inherit."""
if MADE is not None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = MADE
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("XLA_FLAGS", "--xla_llvm_disable_expensive_passes=true")
collect_ignore = [] if "SAUTE_WORLDS" in os.environ else ["worlds"]
"""Tests of other people's packages, which `make worlds` installs in an environment of their own."""


def pytest_unconfigure() -> None:
    if MADE is not None:
        shutil.rmtree(MADE, ignore_errors=True)
