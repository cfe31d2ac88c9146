"""Install into fresh virtual environments of every interpreter found and run the README's three lines in them.

python tests/fresh_install.py
"""

from __future__ import annotations

import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
THREE_LINES = """
import gymnasium as gym, saute, sys
env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), budget=5.0)
env.reset(seed=0)
steps = [env.step(env.action_space.high) for _ in range(20)]
info = steps[-1][4]
assert info["episode_cost"] == 20.0 and info["episode_violated"] and sum(s[1] for s in steps) == 5.0
loaded = sorted({"jax", "mujoco", "matplotlib", "torch"} & set(sys.modules))
assert not loaded, loaded
print(f"Python {sys.version.split()[0]}: gymnasium {gym.__version__}, saute {saute.__version__}: works")
"""


def interpreters() -> list[str]:
    """One interpreter for each supported minor version, from the path and from pyenv."""
    found = {}
    for minor in (11, 12, 13, 14):
        places = [
            shutil.which(f"python3.{minor}"),
            *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python"))),
        ]
        for place in filter(None, places):
            if (
                subprocess.run(
                    [place, "-c", f"import sys; sys.exit(sys.version_info[1] != {minor})"], capture_output=True
                ).returncode
                == 0
            ):
                found[minor] = place
    return list(found.values())


def main() -> None:
    for python in interpreters():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([python, "-m", "venv", folder], check=True)
            inside = f"{folder}/bin/python"
            subprocess.run([inside, "-m", "pip", "install", "--quiet", str(ROOT)], check=True, stderr=subprocess.DEVNULL)
            subprocess.run([inside, "-c", THREE_LINES], check=True, cwd=folder)


if __name__ == "__main__":
    sys.exit(main())
