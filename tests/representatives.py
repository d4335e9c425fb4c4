"""Sweeps: tests of many cases of which `make test` runs a few, `make slow` more, and `make long` the rest."""

from __future__ import annotations

import pytest

# test -> cases that `make test` runs, if any, or n for each n-th case; `make slow` runs the others
FAST: dict[str, tuple[str, ...] | int] = {
    "bad_input/test_table.py::test_impossible_commands_give_one_message_and_leave_nothing_but_a_log": 8,
    "config/test_lightning_features.py::test_unsupported_features_are_refused_with_their_replacement": 3,
    "configs/test_shipped.py::test_group_files_parse_where_they_belong": 6,
    "core/test_batches.py::test_groups_of_environments_make_the_rollout_of_all_of_them": 3,
    "distributions/test_bounded.py::test_actions_never_leave_the_box_and_have_finite_log_probs_and_gradients": 2,
    "cli/test_sweep.py::test_every_sampler_searches_and_the_same_seed_gives_the_same_trials": 3,
    "config/test_trust.py::test_a_run_that_names_other_code_is_refused_before_any_of_it_is_imported": 3,
    "cli/test_rllib.py::test_values_of_options_have_the_types_of_yaml": (),
    "bad_input/test_runs.py::test_a_run_that_fails_leaves_what_others_wrote_into_its_directory": (),
    "callbacks/test_final_evaluation.py::test_every_evaluator_has_its_line": (),
    "cli/test_automatic_networks.py::test_auto_replaces_named_networks_and_no_networks_are_automatic": (),
    "cli/test_imitation.py::test_whatever_is_logged_decides_which_clone_is_the_best": (),
    "estimation/test_clipped_actions.py::test_fitted_values_are_those_of_actions_that_the_environment_receives": (),
    "estimation/test_clipped_actions.py::test_weighted_estimates_of_clipped_policies_are_right": (),
    "modules/on_policy/test_critic_states.py::test_a_slot_holds_nothing_once_its_agent_is_done": (),
    "modules/optimization/test_any_size.py::test_a2c_learns_the_same_from_rows_with_different_numbers_of_acts": (),
    "modules/optimization/test_capture.py::test_each_loss_of_an_algorithm_may_have_several_shapes": (),
    "modules/test_automatic_networks.py::test_the_choice_is_printed_when_training_starts": (),
    "modules/test_coefficients.py::test_a_custom_algorithm_schedules_its_own_option": (),
    "modules/test_coefficients.py::test_a_module_without_its_schedule_is_refused_when_loaded": (),
    "modules/test_coefficients.py::test_traced_updates_follow_schedules_without_being_traced_again": (),
    "modules/test_learning_rates.py::test_lightnings_monitor_shows_the_rate_of_each_batch": (),
    "bad_input/test_runs.py::test_what_a_killed_process_has_not_completed_is_removed_when_the_run_goes_on": (),
    "cli/test_sweep.py::test_a_folder_for_checkpoints_in_the_run_directory_of_each_trial_is_allowed": (),
    "cli/test_sweep.py::test_failed_trials_are_counted_and_too_many_end_the_sweep": (),
    "cli/test_sweep.py::test_hyperband_prunes_across_the_evaluations_of_all_seeds": (),
    "envs/job_shop/test_simulation.py::test_gaps_of_random_choices_are_those_of_the_page": (),
    "envs/test_contract.py::test_workers_tell_of_broken_contracts_as_plainly": (),
    "envs/vehicle_routing/test_pyvrp.py::test_solutions_of_small_instances_are_optimal": (),
    "envs/vector/test_write_pending.py::test_players_of_all_kinds_of_episodes_write": (),
    "envs/vector/test_write_pending.py::test_the_rows_of_running_episodes_are_written": (),
    "loggers/test_wandb_log.py::test_a_page_is_logged_as_html": (),
    "loggers/test_wandb_log.py::test_a_damaged_record_is_named_and_the_next_command_continues_the_new_run": (),
    "loggers/test_wandb_log.py::test_runs_with_one_folder_are_several_runs_and_each_continues_as_itself": (),
    "records/test_spaces_record.py::test_what_is_read_is_what_was_written": (),
    "run_context/test_run_context.py::test_arguments_of_a_rollout_replace_those_of_the_run": (),
    "sweeps/test_result.py::test_importances_are_those_of_good_trials_for_each_direction_and_number_of_objectives": (),
    "sweeps/test_result.py::test_pictures_show_lists_conditional_options_and_pruned_trials": (),
    "test_ppo_in_one_file.py::test_the_parameters_stay_those_of_the_library_through_20_updates": (),
    "cli/test_show.py::test_a_checkpoint_tells_the_command_code_and_spaces_that_it_comes_from": 2,
    "envs/cutting_2d/test_numbers.py::test_greedy_cuts_of_mixed_orders": 2,
    "envs/cutting_2d/test_numbers.py::test_random_valid_cuts": 3,
    "envs/job_shop/test_arrays.py::test_arrays_equal_single_episodes": 3,
    "envs/job_shop/test_arrays.py::test_choices_that_are_not_allowed_are_replaced_as_in_single_episodes": 3,
    "envs/job_shop/test_arrays.py::test_rewards_are_equal_in_arrays": 4,
    "envs/ride_hailing/test_arrays.py::test_options_that_do_not_exist_make_vehicles_stay_as_in_single_episodes": 6,
    "envs/ride_hailing/test_arrays.py::test_rewards_are_equal_in_arrays": 4,
    "envs/ride_hailing/test_arrays.py::test_saved_arrays_continue_as_they_were": 4,
    "envs/ride_hailing/test_arrays.py::test_vector_environments_of_both_forms_have_equal_statistics": 3,
    "envs/ride_hailing/test_configuration.py::test_the_check_finds_both_forms_equal": 3,
    "envs/test_checker.py::test_a_fault_is_found_and_named_and_nothing_else_is_wrong": 4,
    "envs/test_checker.py::test_nothing_is_wrong_with_a_sound_environment": 4,
    "datamodules/test_tensor_rollouts.py::test_events_and_actions_are_logged": ("PPO",),
    "datamodules/test_tensor_rollouts.py::test_resuming_with_other_numbers_of_environments_plays_new_episodes": (
        "options0",
    ),
    "envs/arrays/test_array_reseeding.py::test_search_does_not_see_the_coins_that_will_fall": 2,
    "envs/arrays/test_wrapped_array_checks.py::test_names_the_environment_whatever_wrappers_there_are": 3,
    "envs/vector/test_long_episodes.py::test_a_checkpoint_stops_growing_in_an_episode_that_never_ends": 3,
    "envs/wrappers/test_contract.py::test_vector_environments_of_both_kinds_show_the_same": 26,
    "envs/vector/test_plain_gym_envs.py::test_plain_environments_give_what_wrapped_ones_give": 3,
    "envs/wrappers/test_contract.py::test_a_resumed_collection_goes_on_exactly": 3,
    "envs/wrappers/test_contract.py::test_a_wrapper_can_be_applied_twice_or_says_why_not": 3,
    "envs/wrappers/test_contract.py::test_the_same_seed_gives_the_same_acts": 3,
    "bad_input/test_runs.py::test_a_new_run_on_a_disk_that_is_full_from_the_start_leaves_nothing_behind": ("1000",),
    "callbacks/test_stop_on_signal.py::test_a_script_is_stopped_and_resumed": ("2-batch_start-10",),
    "callbacks/test_stop_on_signal.py::test_a_script_that_rarely_writes_checkpoints_writes_one_when_it_is_stopped": (
        "batch_start-5",
    ),
    "collect/test_exploration_noise.py::test_traces_compute_what_autograd_does": ("gsde",),
    "configs/test_experiments_run.py::test_experiments_train": ("ppo_cartpole",),
    "configs/test_shipped.py::test_sweeps_search_options_that_exist": ("experiment/hyperparameter_search",),
    "datamodules/test_population_arrays.py::test_population_in_arrays_equals_one_after_the_other": (
        "env steps-pendulum",
        "episodes-cartpole",
        "limited-structured with masks",
        "limited-scaled",
    ),
    "envs/arrays/test_array_forms.py::test_a_collector_resumes_exactly_with_wrappers": ("observations",),
    "envs/arrays/test_array_forms.py::test_samples_are_saved": ("cutting",),
    "envs/arrays/test_array_forms.py::test_samples_of_long_episodes_are_equal": ("CartPole", "cutting"),
    "envs/arrays/test_array_forms.py::test_steps_statistics_and_merged_statistics_are_equal": (
        "CartPole-observations",
        "Pendulum-rewards",
        "cutting-monitoring",
        "structured-observations",
    ),
    "envs/job_shop/test_environments.py::test_the_doctor_finds_nothing_wrong": ("structured",),
    "envs/ride_hailing/test_arrays.py::test_arrays_equal_single_episodes": (
        "busy-vehicles",
        "default-central",
        "empty-vehicles",
        "free-vehicles",
        "short-central",
    ),
    "envs/vector/test_long_episodes.py::test_statistics_of_a_resumed_episode_are_those_of_one_that_was_never_stopped": (
        "with_kpis-3-True",
        "plain-1-False",
    ),
    "envs/vehicle_routing/test_arrays.py::test_arrays_equal_single_episodes": (
        "0-1-structured",
        "1-3-flat",
        "2-1-flat",
        "2-3-structured",
    ),
    "envs/vehicle_routing/test_environments.py::test_the_doctor_finds_nothing_wrong": ("structured",),
    "exact/test_impala.py::test_six_epochs_equal_three_and_three_more": (),
    "loggers/test_wandb_log.py::test_configuration_and_final_results_are_config_and_summary_of_one_run": (),
    "modules/optimization/test_capture.py::test_ppo_learns_the_same_with_and_without_capture": ("options1",),
    "modules/optimization/test_gradient_step.py::test_a_module_that_has_learned_can_be_copied": ("PPO",),
    "modules/optimization/test_graphed_trace.py::test_a_simulated_device_trains_as_eager_updates_do": ("structured",),
    "modules/test_algorithm_checkpoints.py::test_four_epochs_equal_two_and_two_more": ("PPO-32-true",),
    "modules/test_impala.py::test_structured_environments_are_learned_from_with_every_critic": (
        "tests.structured.agreement-delta",
        "tests.structured.hierarchy-step",
        "tests.structured.team-step",
    ),
    "modules/test_recurrent.py::test_sequences_give_the_numbers_of_stepping_one_by_one": (
        "4-flat, gru, critic shares",
        "4-several step keys and agents",
        "4-agents come and go",
    ),
    "modules/test_sac.py::test_recorded_updates_are_those_of_autograd": ("masked_choice",),
    "modules/test_schedulers.py::test_resuming_ends_where_the_whole_run_ends": ("every second epoch-off",),
    "modules/test_schedulers.py::test_steps_are_made_with_the_rates_of_automatic_optimisation": (
        "both",
        "every second batch",
        "plateau",
    ),
    "modules/test_shared_embedding.py::test_a_step_follows_the_sum_of_both_losses": (
        "fully-auto",
        "partly-off",
        "flatten_concat-off",
        "apart-off",
    ),
    "modules/test_shared_embedding.py::test_ppo_learns_the_same_with_and_without_capture": ("partly",),
    "perception/blocks/test_contract.py::test_integers_and_flags_count_as_floats_of_the_same_values": 8,
    "perception/blocks/test_contract.py::test_shapes_are_those_that_the_block_has_said": 5,
    "search/test_search_policy.py::test_no_search_foresees_a_coin": (
        "puct:6-True",
        "lookahead:random:6-False",
        "best_of:4-True",
        "beam:4-True",
    ),
}

# test -> slow cases that `make slow` runs, or n for each n-th case; `make long` runs the others
SLOW: dict[str, tuple[str, ...] | int] = {
    "bad_input/test_table.py::test_impossible_commands_give_one_message_and_leave_nothing_but_a_log": 4,
    "configs/test_shipped.py::test_experiments_parse": 3,
    "configs/test_shipped.py::test_group_files_parse_where_they_belong": 3,
    "core/test_batches.py::test_groups_of_environments_make_the_rollout_of_all_of_them": 2,
    "envs/ride_hailing/test_arrays.py::test_options_that_do_not_exist_make_vehicles_stay_as_in_single_episodes": 3,
    "envs/ride_hailing/test_arrays.py::test_rewards_are_equal_in_arrays": 2,
    "envs/test_checker.py::test_a_fault_is_found_and_named_and_nothing_else_is_wrong": 2,
    "envs/test_checker.py::test_nothing_is_wrong_with_a_sound_environment": 2,
    "envs/wrappers/test_contract.py::test_a_wrapper_can_be_applied_twice_or_says_why_not": 2,
    "envs/wrappers/test_contract.py::test_the_same_seed_gives_the_same_acts": 2,
    "envs/wrappers/test_contract.py::test_vector_environments_of_both_kinds_show_the_same": 4,
    "perception/blocks/test_exports.py::test_an_exported_block_gives_the_same_numbers_for_batches_of_any_size": 2,
    "collect/test_exploration_noise.py::test_four_epochs_equal_two_and_two_more": (
        "auto-make_networks",
        "off-recurrent_networks",
    ),
    "config/test_lightning_features.py::test_what_fits_trains_and_leaves_its_files": (
        "ModelCheckpoint",
        "WandbLogger",
        "max_steps",
        "val_check_interval",
        "precision 64-true",
    ),
    "configs/test_experiments_run.py::test_experiments_train": (
        "es_cartpole",
        "impala_cartpole",
        "ppo_cartpole_arrays",
        "ppo_cartpole_recurrent",
        "ppo_hopper",
        "ppo_job_shop",
        "ppo_lunar_lander_fine_tuning",
        "ppo_multi_echelon_stock_small",
        "ppo_pettingzoo",
        "sac_lunar_lander_continuous",
        "td3_pendulum",
    ),
    "configs/test_models_run.py::test_a_model_trains_by_its_documented_command": (
        "critic/flatten_concat_shared",
        "critic/flatten_concat_state_action",
        "critic/template_state",
        "model/flatten_concat_shared_embedding",
        "model/pixel_obs_rnn",
        "model/tutorial_cutting_2d_struct_masked",
        "model/vector_obs_transformer",
    ),
    "envs/vector/test_long_episodes.py::test_a_checkpoint_stops_growing_in_an_episode_that_never_ends": (
        "wrapped",
        "structured",
    ),
    "envs/vector/test_long_episodes.py::test_statistics_of_a_resumed_episode_are_those_of_one_that_was_never_stopped": (
        "discrete-1-True",
        "wrapped-1-False",
        "structured-3-True",
        "monitored-1-False",
    ),
    "exact/test_engines.py::test_workers_decide_nothing_about_the_result": (
        "ppo-hierarchy-n_workers1",
        "a2c-team_memory-n_workers4",
    ),
    "exact/test_es.py::test_workers_decide_nothing_about_the_result": ("team_memory",),
    "exact/test_replay.py::test_six_epochs_equal_three_and_three_more": (
        "hierarchy",
        "td3_pendulum",
        "dqn_hierarchy",
    ),
    "exact/test_replay.py::test_workers_decide_nothing_about_the_result": ("hierarchy",),
    "modules/optimization/test_any_size.py::test_algorithms_learn_the_same_with_and_without_traces": (
        "A2C-options0-step",
        "IMPALA-options1-shared",
        "PPO-options2-step",
        "PPO-options4-shared",
    ),
    "modules/optimization/test_optimizer_options.py::test_updates_are_those_of_the_optimiser_of_torch_traced_or_not": (
        "factory0",
        "RMSprop",
    ),
    "modules/optimization/test_optimizer_options.py::test_other_algorithms_have_the_same_options": (
        "sgd-BC-recorded",
        "RMSprop-ES-population",
    ),
    "modules/optimization/test_optimizer_options.py::test_a_resumed_run_ends_where_the_whole_run_ends": (
        "options0",
        "options3",
    ),
    "modules/optimization/test_reads.py::test_annealing_learns_what_autograd_learns": (
        "Slots",
        "Array",
        "Replaced",
        "Closure",
        "Delegating",
    ),
    "modules/optimization/test_reads.py::test_changes_are_noticed_at_the_very_next_update": (
        "PPO-update",
        "IMPALA-batch",
    ),
    "modules/optimization/test_reads.py::test_all_that_training_counts_is_followed": (
        "global_step",
        "trainer",
        "env_steps",
        "rate",
    ),
    "modules/optimization/test_reads.py::test_a_callback_that_changes_the_networks_is_noticed_at_the_next_batch": (
        "PPO",
    ),
    "modules/test_block_options.py::test_blocks_with_options_are_traced_with_the_numbers_of_eager_updates": (
        "layer norm",
        "images",
        "several heads",
        "graph batch norm",
        "points batch norm",
    ),
    "modules/test_coefficients.py::test_a_constant_schedule_does_the_same_as_its_number": (
        "clip_range-0.03",
        "gae_lambda-0.1",
        "lr-0.003",
    ),
    "modules/test_recurrent.py::test_sequences_give_the_numbers_of_stepping_one_by_one": (
        "1-flat, gru, critic shares",
        "1-several step keys and agents",
        "1-agents come and go",
        "1-transformers",
    ),
    "perception/blocks/test_pointer.py::test_a_network_is_exported_for_any_number_of_slots": (
        "torch-all_slots",
        "onnx-glimpses",
        "onnx-whole_numbers",
    ),
    "perception/test_exported_networks.py::test_a_network_is_exported_for_batches_of_any_size": (
        "flatten_concat_policy",
        "item_set_policy",
        "recurrent_template",
        "transformer_template",
    ),
}

# test -> cases that only `make long` runs; other cases are where they are marked
LONG: dict[str, tuple[str, ...]] = {
    "config/test_lightning_features.py::test_supported_features_train_and_leave_their_files": (
        "profiler simple",
        "RichProgressBar",
        "EarlyStopping",
        "CSVLogger",
    ),
    "cli/test_automatic_networks.py::test_one_line_trains_and_the_run_can_be_resumed_and_loaded": (
        "CliffWalking-v1",
        "Blackjack-v1",
        "FrozenLake-v1",
        "CartPole-v1",
        "LunarLander-v3",
        "Taxi-v4",
        "MountainCarContinuous-v0",
    ),
    "cli/test_seeds.py::test_a_signal_stops_all_seeds_which_then_go_on_as_if_it_had_not": ("2",),
    "collect/engines/test_contract.py::test_a_job_may_return_none": ("ray",),
    "collect/engines/test_contract.py::test_a_policy_without_weights_works_too": ("ray",),
    "collect/engines/test_contract.py::test_a_second_start_forgets_jobs_weights_and_actors": ("ray",),
    "collect/engines/test_contract.py::test_an_actor_that_has_lost_its_environments_begins_anew": ("ray",),
    "collect/engines/test_contract.py::test_actors_may_be_made_by_a_lambda": ("ray",),
    "collect/engines/test_contract.py::test_after_closing_nothing_is_done_until_the_next_start": ("ray",),
    "distributed/test_strategies.py::test_an_agent_is_trained_resumed_validated_and_loaded": ("one_process",),
    "distributed/test_strategies.py::test_all_ways_of_starting_two_ranks_train_the_same": ("ddp_spawn",),
    "envs/wrappers/test_residual_action_wrapper.py::test_training_is_resumed_exactly": (
        "env/multi_echelon_stock",
        "maze_pl.envs.multi_echelon_stock.StockArrayEnvironment",
    ),
    "faults/test_failures.py::test_an_exception_on_one_rank_ends_all": ("sequential",),
    "faults/test_signals.py::test_a_signal_at_any_moment_ends_a_run_so_that_it_can_be_resumed": (
        "1-kind1",
        "3-kind3",
        "6-kind6",
        "36-kind36",
        "38-kind38",
        "40-kind40",
        "43-kind43",
    ),
    "learning/test_exploration.py::test_ppo_swings_the_pendulum_up": ("gsde",),
    "learning/test_structured.py::test_with_gamma_for_each_sub_step_ppo_finds_the_optimum_of_the_wrong_objective": (
        "team-step",
        "hierarchy-step",
    ),
    "test_docs.py::test_what_a_page_shows_works": (
        "job_shop.md",
        "off_policy_evaluation.md",
        "ride_hailing.md",
        "rllib.md",
        "sweeps.md",
        "template_models.md",
        "tutorial/06_events_and_kpis.md",
        "tutorial/07_rewards.md",
        "tutorial/08_structured.md",
        "tutorial/09_masks.md",
        "tutorial/10_results.md",
        "vehicle_routing.md",
        "structured_environments.md",
        "automatic_networks.md",
        "bundles.md",
        "evolution_strategies.md",
        "run_context.md",
        "custom_models.md",
        "multi_echelon_stock.md",
        "tutorial/05_training.md",
        "tutorial/11_arrays.md",
        "environment_doctor.md",
        "action_distributions.md",
        "replay.md",
        "engines.md",
        "preprocessing_and_normalization.md",
        "value_based.md",
        "tuning.md",
        "pettingzoo.md",
    ),
    "test_notebooks.py::test_the_notebook_runs": (
        "looking_at_results",
        "fine_tuning_a_clone",
        "own_environment",
    ),
}


def leave_to_slow_and_long_tests(items: list[pytest.Item], *, all_are_there: bool) -> None:
    """Mark cases of sweeps: as slow all but those in `FAST`, as long all but those in `SLOW`, and those in `LONG`.

    Args:
        items: Tests that were collected.
        all_are_there: All cases of each test are among them, so that a listed one that is missing is an error.
    """
    cases: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        name, _, case = item.nodeid.removeprefix("tests/").removesuffix("]").partition("[")
        cases.setdefault(name, {})[case] = item
    missing = [
        f"{name}[{case}]"
        for listed in (FAST, SLOW, LONG)
        for name, chosen in listed.items()
        if isinstance(chosen, tuple) and name in cases
        for case in {*chosen} - cases[name].keys()
    ]
    if missing and all_are_there:
        raise pytest.UsageError(f"tests/representatives.py names cases that do not exist: {', '.join(sorted(missing))}")
    slow = {item for item in items if item.get_closest_marker("slow")}
    for name, found in cases.items():
        for place, (case, item) in enumerate(found.items()):
            is_slow = item in slow
            if not is_slow and _is_left(place, case, FAST.get(name, 1)):
                is_slow = True
                item.add_marker(pytest.mark.slow)
            if is_slow and (_is_left(place, case, SLOW.get(name, 1)) or case in LONG.get(name, ())):
                item.add_marker(pytest.mark.long)


def _is_left(place: int, case: str, chosen: tuple[str, ...] | int) -> bool:
    """Return whether a case, which has a place among those of its test, is not among the chosen ones."""
    return place % chosen > 0 if isinstance(chosen, int) else case not in chosen
