"""Sweeps: tests of many cases of which `make test` runs a few, `make slow` more, and `make long` the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pytest

Chosen = tuple[str, ...] | int  # cases by name, or n for each n-th one
T = TypeVar("T")

# file -> test -> cases that `make test` runs, if any, or n for each n-th case; `make slow` runs the others
FAST: dict[str, dict[str, Chosen]] = {
    "bad_input/test_table.py": {
        "test_impossible_commands_give_one_message_and_leave_nothing_but_a_log": 16,
    },
    "config/test_lightning_features.py": {
        "test_unsupported_features_are_refused_with_their_replacement": 6,
        "test_statistics_of_devices_need_psutil": (),
    },
    "configs/test_shipped.py": {
        "test_group_files_parse_where_they_belong": 6,
        "test_the_first_lines_say_by_which_command_a_file_is_used": 3,
        "test_rollouts_in_headers_play": 3,
        "test_sweeps_search_options_that_exist": (),
        "test_algorithms_with_documented_defaults_take_each_runner": 12,
        "test_group_files_of_rollouts_parse": 4,
    },
    "core/test_batches.py": {
        "test_groups_of_environments_make_the_rollout_of_all_of_them": 3,
        "test_any_environments_may_be_collected_apart": (),
    },
    "distributions/test_bounded.py": {
        "test_actions_never_leave_the_box_and_have_finite_log_probs_and_gradients": 2,
        "test_updates_with_bounded_distributions_can_be_replayed": 2,
    },
    "cli/test_sweep.py": {
        "test_every_sampler_searches_and_the_same_seed_gives_the_same_trials": 3,
        "test_a_folder_for_checkpoints_in_the_run_directory_of_each_trial_is_allowed": (),
        "test_failed_trials_are_counted_and_too_many_end_the_sweep": (),
        "test_hyperband_prunes_across_the_evaluations_of_all_seeds": (),
        "test_a_relative_configuration_of_the_command_line_is_found_from_another_folder": (),
        "test_trials_that_are_worse_than_the_median_are_pruned": (),
    },
    "config/test_trust.py": {
        "test_a_run_that_names_other_code_is_refused_before_any_of_it_is_imported": 6,
        "test_an_environment_of_a_checkpoint_is_made_only_if_its_classes_are_known": 2,
    },
    "cli/test_rllib.py": {
        "test_values_of_options_have_the_types_of_yaml": (),
    },
    "envs/wrappers/test_contract.py": {
        "test_the_rest_of_the_interface_is_passed_on": 5,
        "test_spec_is_the_same_for_each_copy_and_survives_being_written": 5,
        "test_recorded_states_are_converted_to_what_was_seen_and_done": 5,
        "test_options_of_reset_reach_the_environment": 5,
        "test_observations_are_in_the_spaces": 5,
        "test_merged_states_make_copies_equal": 5,
        "test_isinstance_sees_the_wrapper_and_what_it_wraps": 5,
        "test_close_reaches_the_simulation": 5,
        "test_a_state_is_rebased_onto_what_other_copies_have_added": 5,
        "test_a_frozen_copy_learns_nothing_more": 5,
        "test_a_copy_that_gets_the_state_goes_on_like_the_original": 5,
        "test_a_copy_goes_on_where_a_pickle_was_made": 5,
        "test_vector_environments_of_both_kinds_show_the_same": (),
        "test_a_resumed_collection_goes_on_exactly": 5,
        "test_a_wrapper_can_be_applied_twice_or_says_why_not": 5,
        "test_the_same_seed_gives_the_same_acts": 5,
    },
    "envs/wrappers/test_decisions.py": {
        "test_statistics_records_and_logs_agree_on_an_episode_in_any_wrapper": 3,
    },
    "perception/blocks/test_contract.py": {
        "test_weights_of_any_floating_point_type_give_that_type": 4,
        "test_weights_are_saved_and_loaded": 4,
        "test_options_of_wrong_types_are_refused": 4,
        "test_mixed_precision_gives_finite_numbers": 4,
        "test_leading_dimensions_change_nothing": 4,
        "test_it_is_copied_and_pickled": 4,
        "test_inputs_are_not_changed": 4,
        "test_gradients_are_those_of_small_changes": 4,
        "test_further_dimensions_of_a_shape_are_leading_ones": 4,
        "test_asking_for_shapes_changes_nothing": 4,
        "test_integers_and_flags_count_as_floats_of_the_same_values": 8,
        "test_shapes_are_those_that_the_block_has_said": 5,
    },
    "envs/test_contract.py": {
        "test_a_broken_step_is_explained": 3,
        "test_a_broken_reset_is_explained": 3,
        "test_workers_tell_of_broken_contracts_as_plainly": (),
        "test_what_is_not_a_number_is_named_with_environment_and_step": 3,
    },
    "modules/optimization/test_gradient_hooks.py": {
        "test_hooks_that_callbacks_add_are_called_by_traced_updates": 5,
    },
    "modules/test_learning_rates.py": {
        "test_a_scheduler_goes_on_from_the_rate_of_a_callback": (),
        "test_a_resumed_run_has_what_callbacks_have_set_before": (),
        "test_options_of_a_resumed_run_replace_what_callbacks_have_set": (),
        "test_lightnings_monitor_shows_in_which_batches_only_the_critic_learns": (),
        "test_lightnings_monitor_shows_the_rate_of_each_batch": (),
        "test_a_rate_that_a_callback_sets_is_kept": (),
        "test_options_that_a_callback_sets_are_those_of_the_optimiser": 3,
        "test_a_rate_that_follows_a_schedule_cannot_be_set_which_a_warning_says": 2,
        "test_a_schedule_need_not_have_a_value_after_the_last_batch": (),
    },
    "core/test_episode_batch.py": {
        "test_episodes_with_numbers_and_with_arrays_are_joined": 4,
    },
    "events/test_array_reducing.py": {
        "test_reductions_in_arrays_equal_the_functions_bit_for_bit": 5,
        "test_steps_without_events_count_as_zeros_bit_for_bit": 8,
    },
    "envs/arrays/test_array_statistics.py": {
        "test_episodes_equal_single_ones": 3,
    },
    "events/test_episode_statistics.py": {
        "test_sums_of_arrays_neither_overflow_nor_lose_digits": 3,
    },
    "perception/test_automatic.py": {
        "test_convolutions_fit_images_of_any_size": 4,
    },
    "loggers/test_wandb_log.py": {
        "test_without_a_run_directory_a_run_that_begins_is_another_one": (),
        "test_a_page_is_logged_as_html": (),
        "test_a_damaged_record_is_named_and_the_next_command_continues_the_new_run": (),
        "test_runs_with_one_folder_are_several_runs_and_each_continues_as_itself": (),
        "test_configuration_and_final_results_are_config_and_summary_of_one_run": (),
    },
    "events/test_fit.py": {
        "test_a_declared_kpi_is_monitored": (),
        "test_an_unknown_kpi_is_refused_with_those_that_there_are": (),
    },
    "callbacks/test_network_pictures.py": {
        "test_a_network_that_cannot_run_on_zeros_is_not_drawn_and_still_learns": (),
    },
    "callbacks/test_matmul_precision.py": {
        "test_training_has_its_precision_and_the_earlier_one_returns": (),
    },
    "deployment/test_agent_deployment.py": {
        "test_any_mixture_of_instances_and_configuration": 5,
    },
    "search/test_search_recording.py": {
        "test_only_played_episodes_are_recorded": 4,
    },
    "serving/test_server.py": {
        "test_connections_that_send_no_complete_head_are_closed": (),
        "test_connections_whose_clients_do_not_read_are_closed": 3,
    },
    "cli/test_list.py": {
        "test_every_wrapper_that_is_exported_has_its_docstring": (),
        "test_neither_torch_nor_lightning_is_imported_for_what_can_be_said_without": 4,
    },
    "loggers/test_dashboard.py": {
        "test_plots_that_events_declare_are_shown_as_pictures_over_env_steps": (),
    },
    "datamodules/test_self_labelling.py": {
        "test_the_best_sequence_of_a_small_problem_is_learned": (),
        "test_a_fit_after_one_that_ended_within_an_epoch_plays_its_own_episodes": (),
    },
    "datamodules/test_tensor_replay.py": {
        "test_replay_is_filled_by_random_actions_within_masks_and_learned_from": 4,
    },
    "datamodules/test_tensor_rollouts.py": {
        "test_actors_and_all_critics_learn_from_tensors": (),
        "test_numbers_that_torch_cannot_write_by_index_are_stepped_on_the_host": 4,
        "test_events_and_actions_are_logged": ("PPO",),
        "test_resuming_with_other_numbers_of_environments_plays_new_episodes": ("options0",),
    },
    "deployment/test_bundles.py": {
        "test_a_bundle_decides_as_its_policy_does": 4,
        "test_an_observation_that_the_bundle_clips_may_be_infinite": (),
    },
    "modules/test_late_statistics.py": {
        "test_an_environment_at_fault_is_named_where_losses_fail_first": (),
    },
    "modules/test_td3.py": {
        "test_the_limit_of_target_noise_follows_its_schedule_traced_or_not": (),
    },
    "perception/blocks/test_pointer.py": {
        "test_a_trace_holds_for_other_masks_if_all_slots_are_computed": 3,
    },
    "perception/test_drawing.py": {
        "test_nothing_overlaps_and_everything_is_where_it_belongs": (),
    },
    "search/test_lookahead.py": {
        "test_a_favourite_is_not_left_for_the_luck_of_simulations": (),
        "test_decisions_do_not_depend_on_how_many_simulations_are_played_at_once": (),
        "test_unlikely_actions_are_not_tried_if_a_ratio_says_so": (),
    },
    "sweeps/test_result.py": {
        "test_pictures_need_no_more_than_one_finished_trial": (),
        "test_importances_are_equal_for_each_direction_and_number_of_objectives": (),
        "test_pictures_show_lists_conditional_options_and_pruned_trials": (),
    },
    "bad_input/test_runs.py": {
        "test_a_run_that_fails_leaves_what_others_wrote_into_its_directory": (),
        "test_what_a_killed_process_has_not_completed_is_removed_when_the_run_goes_on": (),
        "test_a_new_run_on_a_disk_that_is_full_from_the_start_leaves_nothing_behind": ("1000",),
    },
    "callbacks/test_final_evaluation.py": {
        "test_every_evaluator_has_its_line": (),
        "test_the_last_and_the_best_policy_are_evaluated_in_new_episodes": (),
    },
    "cli/test_automatic_networks.py": {
        "test_auto_replaces_named_networks_and_no_networks_are_automatic": (),
    },
    "cli/test_imitation.py": {
        "test_whatever_is_logged_decides_which_clone_is_the_best": (),
        "test_what_cannot_be_cloned_is_refused": 2,
    },
    "estimation/test_clipped_actions.py": {
        "test_fitted_values_are_those_of_actions_that_the_environment_receives": (),
        "test_weighted_estimates_of_clipped_policies_are_right": (),
        "test_recorded_actions_on_a_bound_have_the_probability_of_all_that_is_clipped": (),
    },
    "modules/on_policy/test_critic_states.py": {
        "test_a_slot_holds_nothing_once_its_agent_is_done": (),
        "test_states_are_those_of_a_policy_with_the_same_weights_at_all_acts_and_ends": 2,
    },
    "modules/optimization/test_any_size.py": {
        "test_a2c_learns_the_same_from_rows_with_different_numbers_of_acts": (),
        "test_one_trace_gives_the_gradients_of_autograd_for_all_sizes_bit_for_bit": (),
    },
    "modules/optimization/test_capture.py": {
        "test_each_loss_of_an_algorithm_may_have_several_shapes": (),
        "test_ppo_learns_the_same_with_and_without_capture": ("options1",),
    },
    "modules/test_automatic_networks.py": {
        "test_the_choice_is_printed_when_training_starts": (),
    },
    "modules/test_coefficients.py": {
        "test_a_custom_algorithm_schedules_its_own_option": (),
        "test_a_module_without_its_schedule_is_refused_when_loaded": (),
        "test_traced_updates_follow_schedules_without_being_traced_again": (),
    },
    "envs/job_shop/test_simulation.py": {
        "test_gaps_of_random_choices_are_those_of_the_page": (),
    },
    "envs/vehicle_routing/test_pyvrp.py": {
        "test_solutions_of_small_instances_are_optimal": (),
    },
    "envs/vector/test_write_pending.py": {
        "test_players_of_all_kinds_of_episodes_write": (),
        "test_the_rows_of_running_episodes_are_written": (),
    },
    "records/test_spaces_record.py": {
        "test_what_is_read_is_what_was_written": (),
    },
    "run_context/test_run_context.py": {
        "test_arguments_of_a_rollout_replace_those_of_the_run": (),
        "test_a_silent_context_drops_what_lightning_writes_to_the_console_of_its_import": 2,
    },
    "test_ppo_in_one_file.py": {
        "test_the_parameters_stay_those_of_the_library_through_20_updates": (),
    },
    "cli/test_show.py": {
        "test_a_checkpoint_tells_the_command_code_and_spaces_that_it_comes_from": 2,
    },
    "envs/cutting_2d/test_numbers.py": {
        "test_greedy_cuts_of_mixed_orders": 2,
        "test_random_valid_cuts": 3,
    },
    "envs/job_shop/test_arrays.py": {
        "test_arrays_equal_single_episodes": 3,
        "test_choices_that_are_not_allowed_are_replaced_as_in_single_episodes": 3,
        "test_rewards_are_equal_in_arrays": 4,
        "test_the_state_of_one_environment_is_that_of_the_simulation": 3,
        "test_generated_instances_equal_single_episodes": (),
    },
    "envs/ride_hailing/test_arrays.py": {
        "test_options_that_do_not_exist_make_vehicles_stay_as_in_single_episodes": 6,
        "test_rewards_are_equal_in_arrays": 4,
        "test_saved_arrays_continue_as_they_were": 4,
        "test_vector_environments_of_both_forms_have_equal_statistics": (),
        "test_arrays_equal_single_episodes": (
            "busy-vehicles",
            "default-central",
            "empty-vehicles",
            "free-vehicles",
            "short-central",
        ),
        "test_whole_days_equal_single_episodes": 2,
    },
    "envs/ride_hailing/test_configuration.py": {
        "test_the_check_finds_both_forms_equal": 3,
    },
    "envs/test_checker.py": {
        "test_a_fault_is_found_and_named_and_nothing_else_is_wrong": 8,
        "test_nothing_is_wrong_with_a_sound_environment": 4,
    },
    "envs/arrays/test_array_reseeding.py": {
        "test_search_does_not_see_the_coins_that_will_fall": (),
    },
    "envs/arrays/test_wrapped_array_checks.py": {
        "test_names_the_environment_whatever_wrappers_there_are": 3,
    },
    "envs/vector/test_long_episodes.py": {
        "test_a_checkpoint_stops_growing_in_an_episode_that_never_ends": 3,
        "test_statistics_of_a_resumed_episode_are_those_of_one_that_was_never_stopped": (
            "with_kpis-3-True",
            "plain-1-False",
        ),
    },
    "envs/vector/test_plain_gym_envs.py": {
        "test_plain_environments_give_what_wrapped_ones_give": 3,
    },
    "callbacks/test_stop_on_signal.py": {
        "test_a_script_is_stopped_and_resumed": ("2-batch_start-10",),
        "test_a_script_that_rarely_writes_checkpoints_writes_one_when_it_is_stopped": ("batch_start-5",),
        "test_a_rollout_that_does_not_end_after_a_signal_is_given_up": 2,
    },
    "collect/test_exploration_noise.py": {
        "test_traces_compute_what_autograd_does": ("gsde",),
    },
    "configs/test_experiments_run.py": {
        "test_experiments_train": ("ppo_cartpole",),
    },
    "datamodules/test_population_arrays.py": {
        "test_population_in_arrays_equals_one_after_the_other": (
            "env steps-pendulum",
            "episodes-cartpole",
            "limited-structured with masks",
            "limited-scaled",
        ),
        "test_callbacks_freeze_parameters_between_updates": 3,
    },
    "envs/arrays/test_array_forms.py": {
        "test_a_collector_resumes_exactly_with_wrappers": ("observations",),
        "test_samples_are_saved": ("cutting",),
        "test_samples_of_long_episodes_are_equal": ("cutting",),
        "test_steps_statistics_and_merged_statistics_are_equal": (
            "Pendulum-rewards",
            "cutting-monitoring",
            "structured-observations",
        ),
    },
    "envs/job_shop/test_environments.py": {
        "test_the_doctor_finds_nothing_wrong": ("structured",),
    },
    "envs/vehicle_routing/test_arrays.py": {
        "test_arrays_equal_single_episodes": (
            "0-1-structured",
            "1-3-flat",
            "2-1-flat",
            "2-3-structured",
        ),
        "test_generated_instances_equal_single_episodes": (),
        "test_advice_is_equal_in_arrays": 3,
        "test_best_known_distances_of_drawn_instances_are_equal_in_arrays": 2,
    },
    "envs/vehicle_routing/test_environments.py": {
        "test_the_doctor_finds_nothing_wrong": ("structured",),
    },
    "exact/test_impala.py": {
        "test_six_epochs_equal_three_and_three_more": (),
    },
    "modules/optimization/test_gradient_step.py": {
        "test_a_module_that_has_learned_can_be_copied": (),
        "test_a_gradient_that_is_not_finite_is_noticed_behind_a_finite_loss": 3,
        "test_callbacks_and_optimiser_hooks_see_every_step_and_change_nothing": 2,
        "test_recorded_norms_are_those_before_the_limit": 2,
    },
    "modules/optimization/test_graphed_trace.py": {
        "test_a_simulated_device_trains_as_eager_updates_do": (),
    },
    "modules/test_algorithm_checkpoints.py": {
        "test_four_epochs_equal_two_and_two_more": ("PPO-32-true",),
        "test_learning_rate_given_on_resuming_wins": (),
    },
    "modules/test_impala.py": {
        "test_structured_environments_are_learned_from_with_every_critic": (
            "tests.structured.agreement-delta",
            "tests.structured.hierarchy-step",
            "tests.structured.team-step",
        ),
        "test_gradient_is_that_of_a_slow_reference": 3,
        "test_noted_log_probabilities_are_those_of_stepping_one_by_one": 4,
        "test_vtrace_of_streams_and_rows_agrees_with_playing_act_by_act": (),
        "test_without_lag_it_is_a2c_with_whole_returns": (),
    },
    "modules/test_recurrent.py": {
        "test_sequences_give_the_numbers_of_stepping_one_by_one": (
            "4-flat, gru, critic shares",
            "4-several step keys and agents",
            "4-agents come and go",
        ),
        "test_every_act_is_in_one_minibatch_whose_weights_count_what_is_in_it": 4,
        "test_the_same_seed_gives_the_same_run": 2,
    },
    "modules/test_sac.py": {
        "test_recorded_updates_are_those_of_autograd": ("masked_choice",),
        "test_losses_and_their_gradients_are_those_of_loops_over_all_options": 4,
    },
    "modules/test_schedulers.py": {
        "test_resuming_ends_where_the_whole_run_ends": (),
        "test_steps_are_made_with_the_rates_of_automatic_optimisation": ("both",),
        "test_a_value_that_is_not_there_is_named": (),
        "test_a_value_of_a_rare_evaluation_is_monitored_until_the_next_one_also_when_resumed": (),
        "test_a_kpi_that_is_declared_or_may_exist_is_accepted": 2,
    },
    "modules/test_shared_embedding.py": {
        "test_a_step_follows_the_sum_of_both_losses": (
            "fully-auto",
            "partly-off",
            "flatten_concat-off",
            "apart-off",
        ),
        "test_ppo_learns_the_same_with_and_without_capture": ("partly",),
        "test_the_burn_in_of_the_critic_leaves_what_is_shared_alone": 3,
    },
    "search/test_search_policy.py": {
        "test_no_search_foresees_a_coin": (
            "puct:6-True",
            "lookahead:random:6-False",
            "best_of:4-True",
            "beam:4-True",
        ),
        "test_sub_steps_and_masks_are_searched": 3,
        "test_plans_of_episodes_that_end_early_are_dropped": (),
    },
    "envs/arrays/test_array_copies.py": {
        "test_copies_continue_as_the_original_does": 4,
    },
    "callbacks/test_early_end.py": {
        "test_a_run_that_ended_within_an_epoch_ends_as_the_whole_run": 8,
        "test_a_signal_skips_no_evaluation_that_is_counted_over_epochs": 3,
        "test_a_limit_of_steps_can_be_raised": 3,
    },
    "callbacks/test_no_waiting.py": {
        "test_the_callbacks_of_a_run_read_nothing_between_rollouts": (),
    },
    "runs/test_contained_wrappers.py": {
        "test_a_rollout_passes_on_what_the_bundle_clips": (),
    },
    "comparison/test_compare.py": {
        "test_searches_that_cannot_be_played_are_refused_before_anything_is": (),
    },
    "bundle/test_batch_parity.py": {
        "test_a_batch_that_is_decided_differently_is_refused": (),
    },
    "search/test_search_budgets.py": {
        "test_the_time_of_a_search_is_used": (),
    },
    "estimation/test_fitted_q.py": {
        "test_rare_rewards_count_by_their_probability": 3,
        "test_returns_that_differ_by_rounding_are_learned_like_others": (),
    },
    "collect/replay/test_outcomes.py": {
        "test_environments_give_the_transitions_of_the_slow_form": 10,
    },
    "modules/test_half_precision.py": {
        "test_rollouts_keep_their_numbers_with_every_kind_of_critic": 10,
    },
    "cli/test_fit_options.py": {
        "test_trials_of_a_sweep_may_train": 3,
    },
    "datamodules/test_evaluation_arrays.py": {
        "test_training_and_evaluation_have_either_form": 10,
    },
    "collect/tensors/test_tensor_statistics.py": {
        "test_they_are_those_of_the_same_acts_in_arrays": 4,
        "test_a_checkpoint_continues_episodes_with_their_events_and_actions": 4,
    },
    "datamodules/test_evaluation_configurations.py": {
        "test_mistakes_are_refused_in_one_message": 4,
        "test_wrappers_are_not_appended_to_those_of_training_that_an_evaluator_has": (),
        "test_the_command_line_changes_environments_of_evaluators": (),
    },
    "migration/test_documented.py": {
        "test_keys_take_effect_where_the_algorithm_has_them": 3,
    },
    "config/test_texts.py": {
        "test_sweeps_pass_texts_with_lists_and_mappings_on": 2,
        "test_texts_of_files_and_options_stay_texts": 4,
        "test_texts_from_python_that_only_look_like_lists_and_mappings_stay_texts": (),
        "test_policies_of_rollouts_get_texts": 4,
        "test_words_of_options_below_several_components_are_read_as_yaml": (),
        "test_arguments_that_a_function_passes_on_are_texts": 4,
        "test_sweeps_pass_texts_and_nulls_on_as_they_are": (),
        "test_texts_from_python_stay_texts": (),
    },
    "cli/test_commands.py": {
        "test_what_the_user_gets_wrong_is_one_message_and_status_2": 4,
    },
    "modules/optimization/test_traced_loss.py": {
        "test_traces_of_one_precision_do_not_serve_another": (),
        "test_traces_of_one_rank_do_not_serve_several": (),
    },
    "collect/engines/test_contract.py": {
        "test_players_have_time_to_close": 2,
        "test_an_engine_that_was_not_started_can_be_closed_and_copied": 4,
    },
    "envs/arrays/test_array_vector_env.py": {
        "test_rollouts_and_epoch_statistics_are_equal": 3,
        "test_both_forms_give_equal_steps_and_summaries": 4,
        "test_a_collector_resumes_exactly_in_the_middle_of_episodes": 3,
        "test_a_single_episode_view_equals_the_form_for_single_episodes": 3,
    },
    "bad_input/test_es.py": {
        "test_invalid_options_are_refused_in_one_message": 2,
    },
    "modules/test_dqn.py": {
        "test_losses_and_gradients_are_those_of_loops_over_all_options": 4,
        "test_traced_updates_are_those_of_autograd": 2,
    },
    "modules/optimization/test_optimizer_options.py": {
        "test_parameters_of_a_pattern_have_their_own_learning_rate": 3,
        "test_the_learning_rate_follows_its_schedule_and_may_be_zero": (),
        "test_a_resumed_run_has_the_options_of_its_own_configuration": (),
    },
    "modules/optimization/test_reads.py": {
        "test_shipped_losses_are_traced_and_cost_little_to_watch": 3,
    },
    "modules/test_algorithm.py": {
        "test_only_the_critic_learns_during_burn_in": (),
        "test_fast_dev_run_is_limited_also_if_it_overfits": (),
    },
    "distributions/test_environment_log_prob.py": {
        "test_a_bound_has_the_probability_of_all_that_is_clipped_to_it": 4,
    },
    "datamodules/test_self_labelling_arrays.py": {
        "test_episodes_in_arrays_equal_those_of_single_environments": 4,
    },
    "bad_input/test_replay.py": {
        "test_impossible_buffers_are_refused": (),
    },
    "collect/tensors/test_tensor_collector.py": {
        "test_dense_rollouts_are_learned_from_as_any_others": 4,
        "test_a_recorded_step_gives_the_same_rollouts": 3,
        "test_a_loaded_state_continues_exactly": 3,
    },
    "bad_input/test_impala.py": {
        "test_invalid_options_are_refused_in_one_message": 3,
    },
    "perception/blocks/test_exports.py": {
        "test_a_block_is_exported_for_batches_of_any_size": 3,
    },
    "envs/cutting_2d/test_array_environments.py": {
        "test_documented_instances_equal_single_episodes": 4,
    },
    "cli/test_seeds.py": {
        "test_folders_of_checkpoints_that_seeds_would_share_are_refused": 3,
        "test_options_of_an_interrupted_continuation_hold_for_the_seeds_that_lack_them": (),
    },
    "datamodules/test_event_logs.py": {
        "test_rows_of_a_first_evaluation_come_once_although_no_checkpoint_knows_a_row": 3,
    },
    "perception/blocks/test_integers.py": {
        "test_integers_are_pooled_as_floats": 4,
    },
    "collect/tensors/test_tensor_checks.py": {
        "test_faults_are_refused_with_their_names": 4,
    },
    "envs/wrappers/test_action_masks_wrapper.py": {
        "test_masks_that_are_named_outside_are_heeded_by_all_wrappers": 3,
    },
    "envs/arrays/test_random_streams.py": {
        "test_thousands_of_streams_equal_numpys": 4,
    },
    "envs/arrays/test_array_maze_env.py": {
        "test_rules_that_use_the_state_of_the_simulation_play_as_in_single_episodes": 3,
    },
    "cli/test_rollout_command.py": {
        "test_a_command_that_is_wrong_ends_with_2_and_leaves_nothing": 4,
        "test_policies_by_name_group_and_class_path": 4,
    },
    "modules/test_sac_optimisers.py": {
        "test_coefficients_have_the_learning_rate_of_their_group_if_it_has_one": 4,
        "test_callbacks_set_the_rate_of_the_coefficients_unless_its_option_follows_a_schedule": 3,
    },
    "perception/blocks/test_weight_init.py": {
        "test_a_bernoulli_head_with_the_bias_samples_at_the_rate": 3,
    },
    "system/test_console.py": {
        "test_a_command_runs_without_standard_streams": 3,
    },
    "envs/cutting_2d/test_greedy_cutting_policy.py": {
        "test_wrappers_of_observations_do_not_matter": 4,
    },
    "test_older_files.py": {
        "test_agents_decide_as_they_did": 3,
    },
    "cli/test_help.py": {
        "test_help_begins_with_the_line_of_the_list": 4,
    },
    "envs/cutting_2d/test_array_stocks.py": {
        "test_stocks_and_orders_equal_those_of_single_episodes": 4,
    },
    "envs/job_shop/test_rules.py": {
        "test_as_second_actor_a_rule_chooses_among_the_alternatives_of_the_chosen_job": 4,
    },
    "estimation/test_estimate.py": {
        "test_sub_steps_that_never_act_are_left_out_of_the_values": 3,
        "test_the_same_seed_gives_the_same_estimates": (),
    },
    "estimation/test_cloning.py": {
        "test_few_acts_are_learned_past_a_plateau": (),
        "test_agents_are_told_apart_unless_their_number_changes": 2,
    },
    "runs/test_episode_seeds.py": {
        "test_each_instance_is_played_once_and_in_order": ("here",),
    },
    "exact/test_es.py": {
        "test_six_epochs_equal_three_and_three_more": (),
    },
    "modules/test_second_runs.py": {
        "test_a_checkpoint_that_was_refused_has_no_effect_on_the_next_run": (),
    },
    "distributed/test_other_ranks.py": {
        "test_episodes_go_on_counting_where_environments_start_anew": (),
    },
    "events/test_folding.py": {
        "test_a_copy_in_mid_episode_goes_on_equally_before_and_after_values_were_folded": (),
    },
    "envs/vector/test_vector_env.py": {
        "test_a_script_without_a_main_guard_is_told_what_is_missing": (),
        "test_subprocess_and_sequential_environments_give_identical_rollouts": 3,
    },
    "exact/test_cloning.py": {
        "test_six_epochs_equal_three_and_three_more": (),
    },
    "collect/tensors/test_graph_checks.py": {
        "test_a_step_is_recorded_again_if_a_number_of_the_policy_has_changed": (),
    },
    "system/test_worker_process.py": {
        "test_numpy_uses_one_thread_in_workers_unless_the_environment_says_otherwise": 2,
    },
    "modules/test_network_description.py": {
        "test_weights_are_not_loaded_into_networks_with_other_activations": 2,
    },
    "collect/tensors/test_no_host_reads.py": {
        "test_rollouts_and_what_callbacks_keep_of_them_stay_on_the_device": 3,
    },
    "structured/test_arrays.py": {
        "test_generated_cases_equal_single_environments": 3,
    },
    "envs/cutting_2d/test_tensor_environment.py": {
        "test_for_the_same_orders_and_actions_all_numbers_equal_those_in_arrays": 3,
    },
    "modules/test_block_options.py": {
        "test_traced_updates_draw_new_dropout_masks_and_give_the_weights_of_eager_ones": 2,
    },
    "modules/test_averaged_weights.py": {
        "test_the_count_of_steps_is_that_of_the_run": 2,
    },
    "envs/cutting_2d/test_environments.py": {
        "test_environments_in_processes_of_their_own_play_the_same_episodes": 3,
    },
    "datamodules/test_rollouts.py": {
        "test_statistics_begin_again_with_another_module": 2,
    },
    "system/test_memory.py": {
        "test_options_of_the_environment_are_left_alone": 2,
    },
    "comparison/test_coverage.py": {
        "test_intervals_of_few_episodes_with_a_value_cover_95_percent": 3,
    },
    "modules/optimization/test_freezing_by_callbacks.py": {
        "test_a_run_that_is_resumed_after_unfreezing_continues_as_the_whole_run": 3,
    },
    "sweeps/test_importances.py": {
        "test_few_options_without_effect_have_an_importance": 3,
    },
    "datamodules/test_gym_vector.py": {
        "test_vectors_with_all_seeds_learn_the_same_from_equal_starts": 3,
    },
    "envs/arrays/test_chosen_containers.py": {
        "test_the_choice_is_saved": 4,
        "test_the_choice_is_copied": 3,
    },
    "envs/arrays/test_arrays_in_two_places.py": {
        "test_arrays_are_one_or_separate_as_they_were": 3,
        "test_copies_have_one_array_or_separate_ones": 3,
    },
    "envs/checker/test_arrays.py": {
        "test_a_sound_environment_is_told_so": (),
    },
    "deployment/test_trained_wrappers.py": {
        "test_nothing_of_the_training_is_made_that_is_left_out": 2,
    },
    "records/test_same_episode.py": {
        "test_parts_are_cut_episodes_with_which_a_longer_one_begins": 2,
    },
    "envs/wrappers/test_residual_action_wrapper.py": {
        "test_arrays_equal_single_episodes": 2,
    },
    "envs/wrappers/test_trajectory_recording_wrapper.py": {
        "test_environments_of_a_vector_write_their_episodes": 2,
    },
    "cli/test_check.py": {
        "test_two_forms_of_an_environment_are_compared": (),
    },
}

# file -> test -> slow cases that `make slow` runs, or n for each n-th case; `make long` runs the others
SLOW: dict[str, dict[str, Chosen]] = {
    "test_benchmarks.py": {
        "test_a_benchmark_prints_its_figures": (
            "array_cartpole.py",
            "array_cartpole.py --contender plain",
            "array_cutting_2d.py",
            "array_step.py",
            "impala.py --arrays 16",
            "maze_pl_cartpole.py",
            "maze_pl_cutting_2d.py",
            "rollouts.py",
        ),
    },
    "bad_input/test_events.py": {
        "test_what_is_wrong_about_events_is_said_in_one_message": 2,
    },
    "bad_input/test_impala.py": {
        "test_invalid_options_are_refused_in_one_message": 2,
    },
    "bad_input/test_table.py": {
        "test_impossible_commands_give_one_message_and_leave_nothing_but_a_log": 4,
    },
    "configs/test_shipped.py": {
        "test_experiments_parse": 6,
        "test_group_files_parse_where_they_belong": 6,
    },
    "core/test_batches.py": {
        "test_groups_of_environments_make_the_rollout_of_all_of_them": 2,
    },
    "envs/ride_hailing/test_arrays.py": {
        "test_options_that_do_not_exist_make_vehicles_stay_as_in_single_episodes": 3,
        "test_rewards_are_equal_in_arrays": 2,
    },
    "envs/test_checker.py": {
        "test_a_fault_is_found_and_named_and_nothing_else_is_wrong": 2,
        "test_nothing_is_wrong_with_a_sound_environment": 2,
    },
    "envs/wrappers/test_contract.py": {
        "test_a_wrapper_can_be_applied_twice_or_says_why_not": 2,
        "test_the_same_seed_gives_the_same_acts": 2,
        "test_vector_environments_of_both_kinds_show_the_same": 12,
    },
    "perception/blocks/test_exports.py": {
        "test_an_exported_block_gives_the_same_numbers_for_batches_of_any_size": 4,
    },
    "collect/test_exploration_noise.py": {
        "test_four_epochs_equal_two_and_two_more": (
            "auto-make_networks",
            "off-recurrent_networks",
        ),
    },
    "config/test_lightning_features.py": {
        "test_supported_features_train_and_leave_their_files": (
            "ModelCheckpoint",
            "max_steps",
            "val_check_interval",
            "precision 64-true",
        ),
    },
    "configs/test_experiments_run.py": {
        "test_experiments_train": (
            "es_cartpole",
            "impala_cartpole",
            "ppo_cartpole_arrays",
            "ppo_cartpole_recurrent",
            "ppo_job_shop",
            "sac_lunar_lander_continuous",
        ),
    },
    "configs/test_models_run.py": {
        "test_a_model_trains_by_its_documented_command": (
            "critic/flatten_concat_shared",
            "model/flatten_concat_shared_embedding",
            "model/tutorial_cutting_2d_struct_masked",
            "model/vector_obs_transformer",
        ),
    },
    "envs/vector/test_long_episodes.py": {
        "test_a_checkpoint_stops_growing_in_an_episode_that_never_ends": ("wrapped", "structured"),
        "test_statistics_of_a_resumed_episode_are_those_of_one_that_was_never_stopped": (
            "discrete-1-True",
            "wrapped-1-False",
            "structured-3-True",
            "monitored-1-False",
        ),
    },
    "datamodules/test_population_arrays.py": {
        "test_workers_decide_nothing_about_populations_in_arrays": ("options1",),
    },
    "envs/arrays/test_array_reseeding.py": {
        "test_search_does_not_see_the_coins_that_will_fall": ("lookahead:random:16:horizon=1-Coins", "best_of:16-Deck"),
    },
    "run_directory/test_directory.py": {
        "test_the_commands_that_come_next_work": 2,
    },
    "exact/test_es.py": {
        "test_six_epochs_equal_three_and_three_more": ("cartpole",),
    },
    "exact/test_engines.py": {
        "test_a_run_resumes_exactly_with_other_workers": ("ppo",),
        "test_workers_decide_nothing_about_the_result": ("ppo-hierarchy-n_workers1",),
    },
    "exact/test_replay.py": {
        "test_six_epochs_equal_three_and_three_more": (
            "hierarchy",
            "td3_pendulum",
            "dqn_hierarchy",
        ),
        "test_workers_decide_nothing_about_the_result": ("hierarchy",),
    },
    "modules/optimization/test_any_size.py": {
        "test_algorithms_learn_the_same_with_and_without_traces": (
            "A2C-options0-step",
            "IMPALA-options1-shared",
            "PPO-options2-step",
            "PPO-options4-shared",
        ),
    },
    "modules/optimization/test_gradient_hooks.py": {
        "test_hooks_that_callbacks_add_are_called_by_traced_updates": 2,
    },
    "modules/optimization/test_optimizer_options.py": {
        "test_updates_are_those_of_the_optimiser_of_torch_traced_or_not": ("factory0", "RMSprop"),
        "test_other_algorithms_have_the_same_options": (
            "sgd-BC-recorded",
            "RMSprop-ES-population",
        ),
        "test_a_resumed_run_ends_where_the_whole_run_ends": ("options0", "options3"),
    },
    "modules/optimization/test_reads.py": {
        "test_annealing_learns_what_autograd_learns": (
            "Slots",
            "Array",
            "Replaced",
            "Closure",
            "Delegating",
        ),
        "test_changes_are_noticed_at_the_very_next_update": ("PPO-update", "IMPALA-batch"),
        "test_all_that_training_counts_is_followed": (
            "global_step",
            "trainer",
            "env_steps",
            "rate",
        ),
        "test_a_callback_that_changes_the_networks_is_noticed_at_the_next_batch": ("PPO",),
    },
    "modules/test_block_options.py": {
        "test_blocks_with_options_are_traced_with_the_numbers_of_eager_updates": (
            "layer norm",
            "images",
            "several heads",
            "graph batch norm",
            "points batch norm",
        ),
    },
    "modules/test_coefficients.py": {
        "test_a_constant_schedule_does_the_same_as_its_number": (
            "clip_range-0.03",
            "gae_lambda-0.1",
            "lr-0.003",
        ),
    },
    "modules/test_recurrent.py": {
        "test_sequences_give_the_numbers_of_stepping_one_by_one": (
            "1-flat, gru, critic shares",
            "1-several step keys and agents",
            "1-agents come and go",
            "1-transformers",
        ),
    },
    "perception/blocks/test_pointer.py": {
        "test_a_network_is_exported_for_any_number_of_slots": ("onnx-glimpses",),
    },
    "perception/test_exported_networks.py": {
        "test_a_network_is_exported_for_batches_of_any_size": ("flatten_concat_policy",),
    },
}

# file -> test -> cases that only `make long` runs; other cases are where they are marked
LONG: dict[str, dict[str, tuple[str, ...]]] = {
    "cli/test_automatic_networks.py": {
        "test_one_line_trains_and_the_run_can_be_resumed_and_loaded": (
            "CliffWalking-v1",
            "Blackjack-v1",
            "FrozenLake-v1",
            "CartPole-v1",
            "LunarLander-v3",
            "Taxi-v4",
            "MountainCarContinuous-v0",
        ),
    },
    "cli/test_seeds.py": {
        "test_a_signal_stops_all_seeds_which_then_go_on_as_if_it_had_not": ("2",),
    },
    "collect/engines/test_contract.py": {
        "test_players_have_time_to_close": ("ray",),
        "test_a_job_may_return_none": ("ray",),
        "test_a_policy_without_weights_works_too": ("ray",),
        "test_a_second_start_forgets_jobs_weights_and_actors": ("ray",),
        "test_an_actor_that_has_lost_its_environments_begins_anew": ("ray",),
        "test_actors_may_be_made_by_a_lambda": ("ray",),
        "test_after_closing_nothing_is_done_until_the_next_start": ("ray",),
        "test_an_actor_keeps_its_state_and_does_its_jobs_in_order": ("ray",),
        "test_any_other_error_arrives_with_its_trace_and_ends_all": ("ray",),
        "test_a_result_does_not_change_when_the_actor_goes_on": ("ray",),
        "test_a_tensor_that_occurs_twice_arrives_as_one": ("ray",),
        "test_global_generators_of_workers_follow_the_seed_and_differ": ("ray",),
        "test_map_returns_results_in_the_order_of_the_jobs": ("ray",),
        "test_players_know_the_run_that_they_belong_to": ("ray",),
        "test_waiting_without_a_submitted_job_is_an_error": ("ray",),
        "test_weights_of_before_the_first_job_are_those_that_it_is_done_with": ("ray",),
    },
    "collect/engines/test_process_engine.py": {
        "test_workers_end_with_the_main_process_however_it_ends": ("error",),
    },
    "envs/cutting_2d/test_configuration.py": {
        "test_every_variant_trains": ("flat", "struct"),
    },
    "envs/job_shop/test_cp_sat.py": {
        "test_the_optimum_of_published_instances_is_proved": ("ft06", "la31"),
    },
    "faults/test_signals.py": {
        "test_a_rollout_that_fails_after_a_signal_is_abandoned": ("ranks",),
        "test_a_signal_at_any_moment_ends_a_run_so_that_it_can_be_resumed": (
            "1-kind1",
            "3-kind3",
            "6-kind6",
            "36-kind36",
            "38-kind38",
            "40-kind40",
            "43-kind43",
        ),
    },
    "run_context/test_defaults.py": {
        "test_each_algorithm_trains_from_its_defaults": ("td3",),
    },
    "distributed/test_strategies.py": {
        "test_an_agent_is_trained_resumed_validated_and_loaded": ("one_process",),
        "test_all_ways_of_starting_two_ranks_train_the_same": ("ddp_spawn",),
    },
    "envs/wrappers/test_residual_action_wrapper.py": {
        "test_training_is_resumed_exactly": (
            "env/multi_echelon_stock",
            "maze_pl.envs.multi_echelon_stock.StockArrayEnvironment",
        ),
    },
    "faults/test_failures.py": {
        "test_an_exception_on_one_rank_ends_all": ("sequential",),
    },
    "learning/test_exploration.py": {
        "test_ppo_swings_the_pendulum_up": ("gsde",),
    },
    "learning/test_structured.py": {
        "test_with_gamma_for_each_sub_step_ppo_finds_the_optimum_of_the_wrong_objective": (
            "team-step",
            "hierarchy-step",
        ),
    },
    "test_docs.py": {
        "test_what_a_page_shows_works": (
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
            "runs.md",
            "configurations.md",
            "deployment.md",
            "writing_an_algorithm.md",
            "reports.md",
            "viewer.md",
            "imitation.md",
            "impala.md",
            "search_at_decision_time.md",
            "diagnostics.md",
            "images.md",
        ),
    },
    "test_example_algorithms.py": {
        "test_two_epochs_equal_one_and_a_resumed_one": ("td3_pendulum", "iql_cartpole"),
    },
    "test_notebooks.py": {
        "test_the_notebook_runs": (
            "looking_at_results",
            "fine_tuning_a_clone",
            "own_environment",
            "first_example",
        ),
    },
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
    fast, slow, long = _by_test(FAST), _by_test(SLOW), _by_test(LONG)
    files = {name.partition("::")[0] for name in cases}
    missing = [
        name
        for listed in (fast, slow, long)
        for name in listed
        if name.partition("::")[0] in files and name not in cases
    ]
    missing += [
        f"{name}[{case}]"
        for listed in (fast, slow, long)
        for name, chosen in listed.items()
        if isinstance(chosen, tuple) and name in cases
        for case in {*chosen} - cases[name].keys()
    ]
    if missing and all_are_there:
        names = ", ".join(sorted(missing))
        raise pytest.UsageError(f"tests/representatives.py names tests or cases that do not exist: {names}")
    marked = {item for item in items if item.get_closest_marker("slow")}
    for name, found in cases.items():
        for place, (case, item) in enumerate(found.items()):
            is_slow = item in marked
            if not is_slow and _is_left(place, case, fast.get(name, 1)):
                is_slow = True
                item.add_marker(pytest.mark.slow)
            if is_slow and (_is_left(place, case, slow.get(name, 1)) or case in long.get(name, ())):
                item.add_marker(pytest.mark.long)


def _by_test(listed: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """Return which cases are chosen, by the names of tests with those of their files."""
    return {f"{file}::{test}": chosen for file, tests in listed.items() for test, chosen in tests.items()}


def _is_left(place: int, case: str, chosen: Chosen) -> bool:
    """Return whether a case, which has a place among those of its test, is not among the chosen ones."""
    return place % chosen > 0 if isinstance(chosen, int) else case not in chosen
