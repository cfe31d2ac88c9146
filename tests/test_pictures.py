"""Pictures: the encoder against XLA's convolution, what goes around it, bytes in the replay, and probes that have to look."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from choosing_toys import RedSide
from gymnasium import spaces

import saute
from saute.algos.cpo import cpo
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.ppo import ppo
from saute.algos.sac import SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.encoder import encoded_size
from saute.core.protocol import Spec, spec_of
from saute.learn.constraint import lagrangian, pid
from saute.learn.drive import drive
from saute.learn.nets import init_mlp, mlp, normaliser, policy_for
from saute.learn.pictures import convolved, encoded, init_filters
from saute.learn.replay import Pictured, packed, row_like, unpacked
from saute.runs.evaluate import evaluate

IMAGE, OTHERS = (12, 9, 2), 3
PIXELS = math.prod(IMAGE)


def observations(count: int, image: tuple[int, int, int] = IMAGE) -> Any:
    """Pictures of whole numbers, and other numbers after them."""
    pixels, others = jax.random.split(jax.random.key(5))
    picture = jax.random.randint(pixels, (count, math.prod(image)), 0, 256).astype(float)
    return jnp.concatenate([picture, 5.0 + jax.random.normal(others, (count, OTHERS))], axis=1)


@pytest.mark.parametrize(("side", "stride"), [(3, 1), (3, 2), (4, 2)])
def test_convolutions_are_those_of_xla(side: int, stride: int) -> None:
    x, weight = (jax.random.normal(jax.random.key(0), shape) for shape in ((2, 12, 9, 2), (side, side, 2, 5)))
    numbers = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=numbers)
    np.testing.assert_allclose(convolved(x, weight, stride), expected, atol=1e-5)


@pytest.mark.parametrize("image", [(8, 8, 1), (12, 9, 2), (48, 60, 3)])
def test_features_come_first_and_the_other_numbers_go_around(image: tuple[int, int, int]) -> None:
    obs, filters = observations(2, image), init_filters(jax.random.key(0), image)
    found = encoded(filters, obs, image)
    assert found.shape == (2, encoded_size(math.prod(image) + OTHERS, image))
    np.testing.assert_array_equal(found[:, -OTHERS:], obs[:, -OTHERS:])
    white = encoded(filters, obs.at[:, : math.prod(image)].set(255.0), image)
    assert np.isfinite(found).all() and 0.0 < jnp.abs(white[:, :-OTHERS]).max() < 10.0, "pixels are divided by 255"


@pytest.mark.parametrize("space", [spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3), spaces.MultiDiscrete([2, 3])])
def test_pixels_are_never_normalised_and_exported_policies_absorb_the_rest(space: Any) -> None:
    x = observations(20)
    inputs = normaliser(x, 1, IMAGE)
    np.testing.assert_array_equal(inputs(x)[:, :PIXELS], x[:, :PIXELS])
    np.testing.assert_array_equal(inputs(x)[:, -1], x[:, -1])
    np.testing.assert_allclose(inputs(x)[:, PIXELS:-1].mean(0), 0.0, atol=1e-4)
    policy = policy_for(spaces.Box(-np.inf, np.inf, (PIXELS + OTHERS,)), space, (8,), IMAGE)
    parameters = policy.init(jax.random.key(0))
    plain = policy.distribution(policy.absorb(parameters, inputs), x)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(policy.distribution(parameters, inputs(x))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_nets_take_any_batch_of_pictures() -> None:
    net, x = init_mlp(jax.random.key(0), (PIXELS + OTHERS, 8, 2), IMAGE), observations(6)
    whole = mlp(net, x, image=IMAGE)
    np.testing.assert_allclose(mlp(net, x.reshape(2, 3, -1), image=IMAGE).reshape(6, 2), whole, atol=1e-5)
    np.testing.assert_allclose(mlp(net, x[4], image=IMAGE), whole[4], atol=1e-5)
    assert mlp(net, x[:0], image=IMAGE).shape == (0, 2)


@pytest.mark.parametrize(
    ("image", "message"),
    [((7, 20, 3), "pictures of 7×20 are below the encoder's minimum of 8×8"), ((20, 20, 3), "1200 pixels, but there are only")],
)
@pytest.mark.parametrize("algorithm", [ppo(), sac()], ids=["ppo", "sac"])
def test_pictures_that_do_not_fit_are_refused(algorithm: Any, image: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        algorithm.agent(Spec(spaces.Box(0.0, 255.0, (600,), np.float32), spaces.Discrete(2), image=image))


def test_a_replay_of_pictures_that_does_not_fit_into_memory_is_refused() -> None:
    spec = Spec(spaces.Box(0.0, 255.0, (1000 * 1000 * 3,), np.float32), spaces.Discrete(2), image=(1000, 1000, 3))
    with pytest.raises(ValueError, match=r"replay=100,000,000 pictures \(1000, 1000, 3\) would take 600000 GB"):
        sac(settings=SacSettings(replay=100_000_000)).agent(spec)


def test_the_replay_keeps_pixels_as_bytes_and_gives_them_back() -> None:
    obs = observations(5)
    kept = packed(obs, IMAGE)
    assert isinstance(kept, Pictured) and kept.pixels.dtype == jnp.uint8
    assert kept.pixels.nbytes + kept.others.nbytes == 5 * (PIXELS + 4 * OTHERS)
    np.testing.assert_array_equal(unpacked(kept), obs)
    np.testing.assert_array_equal(packed(jnp.array([[-3.0, 300.0]]), (1, 2, 1)).pixels, [[0, 255]])
    row = row_like(PIXELS + OTHERS, jnp.zeros(1), None, (), IMAGE)
    assert row.obs.pixels.shape == (PIXELS,) and row.next_obs.others.shape == (OTHERS,)
    assert row_like(4, jnp.zeros(1), None).obs.dtype == jnp.float32


PPO = OnPolicySettings(
    hidden=(32,), steps_per_epoch=640, num_envs=64, minibatches=4, policy_iterations=24, value_iterations=16, policy_rate=1e-3,
    value_rate=3e-3, target_kl=0.05, discount=0.9, trace=0.9,
)  # fmt: skip
SAC = SacSettings(
    hidden=(32,), batch=32, replay=4000, random_steps=200, steps_per_epoch=200, num_envs=20, rate=1e-3, averaging=0.02,
    discount=0.8, updates_per_step=0.5, temperature_rate=1e-2,
)  # fmt: skip


def trained(algorithm: Any, env: Any, epochs: int) -> tuple[Any, Any, dict[str, Any]]:
    agent = algorithm.agent(spec_of(env))
    body = drive(agent, env)
    seeds = body.first([jax.random.key(0)])
    for i in range(epochs):
        ((seed, numbers),) = body.epoch(seeds, [jax.random.key(i)])
        seeds = [seed]
    return agent, seeds[0].state, numbers


@pytest.mark.parametrize("algorithm", [ppo(settings=PPO), sac(settings=SAC)], ids=["ppo", "sac"])
def test_a_cost_that_only_the_picture_shows_is_avoided(algorithm: Any) -> None:
    """A budget of ½ is overspent by one wrong look."""
    env = saute.saute(RedSide(), budget=0.5)
    agent, state, _ = trained(algorithm, env, 15)
    outcome = evaluate(agent.policy, agent.export(state), env, 200)
    assert outcome.cost.mean() < 0.05 and outcome.violated.mean() < 0.05
    assert 4.9 < outcome.task_return.mean() <= 5.1, "5 is all that can be had without a cost"
    if algorithm.name == "sac":
        assert state.replay.rows.obs.pixels.dtype == jnp.uint8


@pytest.mark.parametrize(
    "algorithm",
    [
        trpo(lagrangian(1.0), dataclasses.replace(PPO, steps_per_epoch=20, num_envs=2, cg_iterations=2, normalise=True)),
        cpo(1.0, dataclasses.replace(PPO, steps_per_epoch=20, num_envs=2, cg_iterations=2)),
        sac(pid(1.0), dataclasses.replace(SAC, steps_per_epoch=20, num_envs=2, random_steps=10, batch=4, relabel=True)),
    ],
    ids=["trpo", "cpo", "sac"],
)
def test_every_net_of_a_constrained_learner_sees_the_picture(algorithm: Any) -> None:
    env = saute.saute(RedSide(continuous=True), budget=2.0)
    agent, state, numbers = trained(algorithm, env, 2)
    assert numbers["finite"] and agent.policy.image == RedSide.image
    before = agent.init(jax.random.key(0))
    for name in ("policy", "value", "cost_value", "critics", "cost_critic"):
        old, new = (jax.tree.leaves(getattr(one, name, ())) for one in (before, state))
        assert all((a != b).any() for a, b in zip(old, new, strict=True)), f"{name} learned in every layer"
