"""Tests compile many small programs, often the same one: each is compiled once, quickly, and kept for the next run."""

from __future__ import annotations

import importlib.util
import os
import pathlib

import pytest

# Programs are found by their content, the compiler's version and its flags; those that were not used for longest go first.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(500 * 2**20))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("XLA_FLAGS", "--xla_llvm_disable_expensive_passes=true")
CLIENTS = ("torch", "stable_baselines3", "sb3_contrib", "sbx", "tianshou", "torchrl")
MISSING = [name for name in CLIENTS if importlib.util.find_spec(name) is None]
OF_CLIENTS = ["test_examples.py", "test_sb3.py"] if MISSING else []
ELSEWHERE = {"worlds": "SAUTE_WORLDS", "rllib": "SAUTE_RLLIB"}
collect_ignore = OF_CLIENTS + [folder for folder, asked in ELSEWHERE.items() if asked not in os.environ]
"""Also tests of other people's packages, which `make worlds` and `make rllib` install in environments of their own."""

OTHERS = ("cpo", "mbpo", "pets", "trpo")
"""Learners whose runs of the tests for all learners take long; PPO and SAC stay in the quick part."""
LONG = (
    "test_cluster.py",
    "test_discrete_sac.py",
    "test_foreign.py",
    "test_mbpo.py",
    "test_pets.py",
    "test_pictures.py",
    "test_several.py",
    "test_shield.py",
    "test_simmer.py",
    "test_statistics.py",
    "test_sweep.py",
)
"""Files that train much; `make verify` runs them."""
TABLE = "test_the_table_of_the_page_says_what_happens"
"""Trains every learner in every kind of environment."""
VARIANTS = (
    "test_budget.py::test_integer_budgets_spent_exactly_leave_exactly_zero_and_one_more_is_a_violation[jax64]",
    "test_certify.py::test_another_budget_is_seen_relative_to_the_one_of_training[pendulum]",
    "test_certify.py::test_another_budget_is_seen_relative_to_the_one_of_training[saute/TwoArms-v0]",
    "test_cluster.py::test_shards_are_put_together_as_if_one_process_had_trained_all[ray]",
    "test_cluster.py::test_what_was_begun_one_way_is_not_continued_in_the_other",
    "test_config.py::test_it_trains_where_neither_flock_nor_affinity_exist",
    "test_discrete_sac.py::test_sauted_probe_buys_with_its_budget_and_never_overspends[False]",
    "test_exact.py::test_controller_keeps_the_budget_and_earns_much",
    "test_examples.py::test_the_sauted_learner_keeps_its_budget_and_uses_it[sbx_ppo]",
    "test_examples.py::test_the_sauted_learner_keeps_its_budget_and_uses_it[tianshou_ppo]",
    "test_examples.py::test_the_sauted_learner_keeps_its_budget_and_uses_it[torchrl_ppo]",
    "test_goal.py::test_only_sauted_policies_of_the_fast_preset_begin_nearer_to_the_hazard_and_only_in_training",
    "test_goal.py::test_the_car_begins_as_near_as_its_settings_say",
    "test_honest.py::test_a_thousand_steps_of_mujoco_end_in_the_first_epoch_with_default_options[cpo]",
    "test_honest.py::test_a_thousand_steps_of_mujoco_end_in_the_first_epoch_with_default_options[sac]",
    "test_honest.py::test_a_thousand_steps_of_mujoco_end_in_the_first_epoch_with_default_options[trpo]",
    "test_honest.py::test_constraints_are_steered_by_the_true_cost_of_an_episode[cpo-native]",
    "test_honest.py::test_constraints_are_steered_by_the_true_cost_of_an_episode[cvar-native]",
    "test_honest.py::test_constraints_are_steered_by_the_true_cost_of_an_episode[lagrangian-host]",
    "test_honest.py::test_constraints_are_steered_by_the_true_cost_of_an_episode[pid-host]",
    "test_honest.py::test_environments_that_are_not_sauted_are_held_against_the_limit_or_the_budget[native]",
    "test_honest.py::test_episodes_longer_than_an_epoch_go_on_and_each_counts_once[host]",
    "test_honest.py::test_violations_come_from_the_carried_budget_everywhere[given1-tolls1-1.0-native]",
    "test_honest.py::test_violations_come_from_the_carried_budget_everywhere[given3-tolls3-0.0-native]",
    "test_learners.py::test_it_learns_and_its_numbers_are_finite[mbpo-host]",
    "test_learners.py::test_it_learns_and_its_numbers_are_finite[pets-host]",
    "test_learners.py::test_nothing_is_compiled_again_after_the_first_epoch[mbpo-host]",
    "test_mbpo.py::test_batches_have_their_share_of_real_steps[0.0]",
    "test_mbpo.py::test_batches_have_their_share_of_real_steps[0.25]",
    "test_model.py::test_the_papers_variant_learns_z_as_a_state_dimension",
    "test_nets.py::test_several_actions_are_learned_within_the_budget[cpo]",
    "test_nets.py::test_several_actions_are_learned_within_the_budget[ppo]",
    "test_nets.py::test_several_actions_are_learned_within_the_budget[trpo]",
    "test_pictures.py::test_a_cost_that_only_the_picture_shows_is_avoided[ppo]",
    "test_pictures.py::test_a_cost_that_only_the_picture_shows_is_avoided[sac]",
    "test_pictures.py::test_every_net_of_a_constrained_learner_sees_the_picture[cpo]",
    "test_pictures.py::test_every_net_of_a_constrained_learner_sees_the_picture[sac]",
    "test_pictures.py::test_every_net_of_a_constrained_learner_sees_the_picture[trpo]",
    "test_pictures.py::test_features_come_first_and_the_other_numbers_go_around[image0]",
    "test_pictures.py::test_features_come_first_and_the_other_numbers_go_around[image1]",
    "test_pictures.py::test_features_come_first_and_the_other_numbers_go_around[image2]",
    "test_pictures.py::test_nets_take_any_batch_of_pictures",
    "test_pictures.py::test_pixels_are_never_normalised_and_exported_policies_absorb_the_rest[space0]",
    "test_policy.py::test_every_kind_of_policy_acts_as_before_when_it_is_loaded[discrete and a picture]",
    "test_reproduce.py::test_every_run_of_every_artifact_can_be_made[laptop]",
    "test_runs.py::test_any_gymnasium_environment_trains_through_the_host_collector",
    "test_runs.py::test_killed_through_the_command_line_and_resumed_ends_with_the_identical_policy",
    "test_runs.py::test_soft_actor_critic_in_gymnasiums_environments_through_the_command_line",
    "test_runs.py::test_soft_actor_critic_through_the_command_line[lagrangian]",
    "test_runs.py::test_soft_actor_critic_through_the_command_line[saute]",
    "test_sac.py::test_before_the_first_update_there_are_no_numbers_of_one",
    "test_sac.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[lagrangian]",
    "test_sac.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[pid]",
    "test_sac.py::test_unconstrained_probe",
    "test_several.py::test_models_predict_all_costs[mbpo-bare]",
    "test_several.py::test_models_predict_all_costs[mbpo-sauted]",
    "test_several.py::test_models_predict_all_costs[pets-bare]",
    "test_several.py::test_models_predict_all_costs[pets-sauted]",
    "test_several.py::test_numbers_of_every_constraint_are_told[sac]",
    "test_several.py::test_numbers_of_every_constraint_are_told[trpo]",
    "test_simmer.py::test_every_seed_has_a_schedule_of_its_own[native]",
    "test_statistics.py::test_an_epoch_acts_and_learns_by_one_normaliser_and_then_moves_it",
    "test_statistics.py::test_odd_units_are_learned_with_running_statistics_and_not_without[ppo]",
    "test_statistics.py::test_odd_units_are_learned_with_running_statistics_and_not_without[sac]",
    "test_statistics.py::test_statistics_are_those_of_the_task_and_the_policy_absorbs_them[sac]",
    "test_stopping.py::test_a_signal_saves_a_checkpoint_and_a_policy[SIGHUP-129-1]",
    "test_train.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[ppo-lagrangian]",
    "test_train.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[ppo-pid]",
    "test_train.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[trpo-lagrangian]",
    "test_train.py::test_constrained_probe_comes_to_the_limit_and_not_beyond[trpo-pid]",
    "test_train.py::test_discrete_actions_are_learned",
    "test_train.py::test_sauted_probe_spends_its_budget_and_no_more[ppo]",
    "test_train.py::test_the_tail_of_the_costs_is_held_at_the_limit[trpo-cvar-tail]",
    "test_train.py::test_the_tail_of_the_costs_is_held_at_the_limit[trpo-cvar]",
    "test_train.py::test_the_trust_region_shrinks_to_a_tenth[cpo]",
    "test_train.py::test_the_trust_region_shrinks_to_a_tenth[ppo]",
    "test_train.py::test_the_trust_region_shrinks_to_a_tenth[trpo]",
    "test_train.py::test_unconstrained_probe[ppo]",
    "test_train.py::test_unconstrained_probe_in_minibatches_with_scaled_values[algorithm0]",
    "test_train.py::test_unconstrained_probe_in_minibatches_with_scaled_values[algorithm1]",
    "test_trust_region.py::test_dual_equals_the_numerical_solution_to_1e_6[2]",
    "test_validation.py::test_what_is_kept_is_the_policy_with_the_best_validation[1]",
    "test_your_task.py::test_the_table_of_the_page_says_what_happens[Dict observations]",
    "test_your_task.py::test_the_table_of_the_page_says_what_happens[images]",
)
"""Tests that take long, most of them variants whose siblings stay in the quick part; `make verify` runs these too."""


def pytest_report_header() -> str | None:
    if not OF_CLIENTS:
        return None
    return f"left out: {' and '.join(OF_CLIENTS)}, because of {', '.join(MISSING)}; make setup installs them or says why not"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        another = item.path.name in ("test_host.py", "test_learners.py") and item.name.partition("[")[2].startswith(OTHERS)
        if another or item.path.name in LONG or item.name.startswith(TABLE) or f"{item.path.name}::{item.name}" in VARIANTS:
            item.add_marker("slow")
