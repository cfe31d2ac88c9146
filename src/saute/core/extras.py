"""Which extra brings a package that is missing, in a sentence that ends with the command that installs it."""

from __future__ import annotations

__all__ = ["needed"]

EXTRAS = {
    "train": ("jax", "jaxlib", "jaxtyping", "optax", "safetensors", "filelock", "scipy", "mujoco"),
    "render": ("PIL", "imageio", "imageio_ffmpeg", "pygame"),
    "plot": ("matplotlib",),
    "report": ("bokeh",),
    "jax-envs": ("brax", "gymnax"),
    "export": ("onnx",),
    "log": ("tensorboardX", "wandb"),
    "ray": ("ray",),
    "sweep": ("optuna",),
    "sb3": ("stable_baselines3",),
    "hub": ("huggingface_hub",),
    "all": ("tyro", "rich"),
}


def needed(what: str, missing: ModuleNotFoundError) -> str | None:
    """What is missing and how to get it; None if no extra brings it.

    Example:
        >>> needed("saute.train", ModuleNotFoundError("No module named 'jax'", name="jax"))
        "saute.train needs jax, which is not installed: pip install 'saute[train]'"
    """
    package = (missing.name or "").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    return None if extra is None else f"{what} needs {package}, which is not installed: pip install 'saute[{extra}]'"
