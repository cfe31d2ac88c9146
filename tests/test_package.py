"""What a plain `import saute` does and does not do."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["jax", "mujoco", "matplotlib", "torch", "PIL", "scipy", "imageio", "pygame"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_needs_numpy_and_gymnasium_only() -> None:
    assert run(f"import saute, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))") == "[]"


def test_the_wrapper_needs_numpy_and_gymnasium_only() -> None:
    code = f"""
import sys
for name in {HEAVY!r}: sys.modules[name] = None  # as if it were not installed
import gymnasium as gym, saute
env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), budget=5.0)
env.reset(seed=0)
print(sum(env.step([1.0])[1] for _ in range(20)))
"""
    assert run(code) == "5.0"


def test_public_names_exist_and_are_typed() -> None:
    import importlib.resources

    import saute

    assert all(hasattr(saute, name) for name in saute.__all__)
    assert importlib.resources.files("saute").joinpath("py.typed").is_file()
    with pytest.raises(AttributeError):
        _ = saute.no_such_name
