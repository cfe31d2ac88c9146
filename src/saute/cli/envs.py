"""`saute envs`: the tasks of the paper and of the field's benchmark, with what they set by themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym

from saute.core.tables import as_json, columns, room
from saute.envs import TASKS, make_task, task_named

__all__ = ["Envs", "envs"]


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the tasks that come with the package; every other Gymnasium id works too, as Id-v0 or module:Id-v0."""

    json: bool = False
    """Print the list as JSON instead."""


def envs(options: Envs) -> None:
    found = entries()
    if options.json:
        print(as_json(found))
        return
    rows = [("task", "Gymnasium id", "steps", "budget", "unsafe reward", "physics")]
    for it in found:
        numbers = (f"{it[name]:g}" for name in ("horizon", "budget", "unsafe_reward"))
        rows.append((it["task"], it["id"], *numbers, ", ".join(it["engines"])))
    print(columns(rows, right=(2, 3, 4), width=room()))
    print("\nLook at one, or at any other Gymnasium id, with saute check ENV")


def entries() -> list[dict[str, Any]]:
    """Name, id, length of an episode, budget, unsafe reward and engines of every task."""
    ids = {task_named(id): id for id in gym.registry if task_named(id) in TASKS}
    made = {name: make_task(name) for name in TASKS}
    return [
        {
            "task": name,
            "id": ids[name],
            **{field: getattr(task, field) for field in ("horizon", "budget", "unsafe_reward")},
            "engines": TASKS[name].engines,
        }
        for name, task in made.items()
    ]
