"""What a plain `import saute` does and does not do."""

from __future__ import annotations

import importlib.resources
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import saute

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


def test_a_name_whose_packages_are_missing_says_which_extra_brings_them() -> None:
    code = """
import sys
sys.modules["jax"] = None  # as if it were not installed
import saute
try: saute.train
except ModuleNotFoundError as missing: print(missing)
"""
    assert run(code) == "saute.train needs jax, which is not installed: pip install 'saute[train]'"


PUBLIC = [
    "BudgetedPolicy",
    "GymEnv",
    "GymVectorEnv",
    "HostEnvs",
    "SauteVectorWrapper",
    "SauteWrapper",
    "Selection",
    "budget",
    "certify",
    "cpo",
    "envs",
    "flat",
    "from_brax",
    "from_gymnax",
    "from_six_tuple",
    "lagrangian",
    "load_policy",
    "load_shield",
    "mbpo",
    "model_env",
    "pets",
    "pi_schedule",
    "pid",
    "ppo",
    "q_schedule",
    "sac",
    "saute",
    "to_six_tuple",
    "train",
    "trpo",
    "uniform",
]


def test_public_names_can_be_imported_and_completed() -> None:
    code = f"import saute; print(sorted(saute.__all__) == {PUBLIC!r}, sorted(set({PUBLIC!r}) - set(dir(saute))))"
    assert run(code) == "True []"
    assert run(f"import saute; print([name for name in {PUBLIC!r} if getattr(saute, name) is None])") == "[]"
    assert run(f"from saute import {', '.join(PUBLIC)}") == ""
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = saute.no_such_name


def test_a_type_checker_knows_every_public_name(tmp_path: Path) -> None:
    assert importlib.resources.files("saute").joinpath("py.typed").is_file()
    code = "import saute\n" + "\n".join(f"reveal_type(saute.{name})" for name in PUBLIC) + "\nsaute.no_such_name\n"
    (tmp_path / "user.py").write_text(code)
    source = Path(saute.__file__).parents[1]
    words = [sys.executable, "-m", "mypy", str(tmp_path / "user.py")]  # with the settings and the cache of `make lint`
    asked = {**os.environ, "MYPYPATH": str(source)}
    out = subprocess.run(words, cwd=source.parent, env=asked, capture_output=True, text=True).stdout
    revealed = re.findall(r'note: Revealed type is "(.*)"', out)
    assert len(revealed) == len(PUBLIC) and "Any" not in revealed, out
    assert 'Module has no attribute "no_such_name"' in out
