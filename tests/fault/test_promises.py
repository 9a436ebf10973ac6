"""Every fault that a promise is made about, and the tests that prove it; no row is without one."""

import ast
from functools import cache

import pytest
from commands import ROOT

PROMISES = {
    "SIGKILL of an actor": [
        "fault/test_supervision.py::test_whoever_is_killed_and_whenever",
        "fault/test_supervision.py::test_the_only_actor_of_dqn_comes_back_and_explores_on",
        "fault/test_faults.py::"
        "test_one_that_is_killed_and_may_not_be_replaced_ends_the_run_and_is_named",
        "unit/test_supervise.py::test_one_that_is_killed_is_replaced_at_the_next_look_with_its_counts",
        "unit/test_supervise.py::test_one_that_comes_to_nothing_is_replaced_later_and_later",
    ],
    "SIGKILL of all actors": [
        "fault/test_supervision.py::"
        "test_synchronous_training_goes_on_while_an_actor_is_away_and_when_all_are",
        "unit/test_supervise.py::"
        "test_one_more_than_the_budget_within_an_hour_ends_the_run_with_the_first_words",
    ],
    "SIGKILL of a buffer": [
        "fault/test_supervision.py::test_a_buffer_of_its_own_comes_back_in_synchronous_training",
        "unit/test_replacing_learners.py::test_training_goes_on_whoever_is_lost_and_when",
    ],
    "SIGKILL of a learner": [
        "fault/test_supervision.py::test_a_learner_comes_back_with_its_buffer_while_actors_stay",
        "fault/test_faults.py::"
        "test_one_that_is_killed_and_may_not_be_replaced_ends_the_run_and_is_named",
        "unit/test_replacing_learners.py::test_training_goes_on_whoever_is_lost_and_when",
        "unit/test_replacing_learners.py::"
        "test_a_learner_goes_on_at_its_version_with_the_weights_that_it_published_last",
    ],
    "the launcher dies": [
        "fault/test_faults.py::test_children_and_shared_memory_go_when_the_launcher_is_killed",
        "fault/test_checkpoint_faults.py::"
        "test_the_same_command_goes_on_after_everything_was_killed",
        "fault/test_checkpoint_faults.py::"
        "test_a_kill_between_any_two_changes_on_disk_leaves_a_valid_checkpoint",
    ],
    "an environment raises": [
        "fault/test_faults.py::test_an_environment_that_raises_once_costs_an_episode_and_is_shown",
        "fault/test_faults.py::test_an_environment_that_raises_again_and_again_ends_the_run",
        "unit/test_mending.py::test_what_breaks_costs_one_episode_and_its_row_only_begins_the_next",
    ],
    "an environment hangs or crashes": [
        "fault/test_supervision.py::test_an_actor_whose_environment_hangs_or_crashes_is_replaced",
        "fault/test_supervision.py::test_an_actor_that_is_stopped_for_five_seconds_is_left_alone",
        "fault/test_supervision.py::"
        "test_an_actor_whose_environment_exits_with_the_status_of_a_mistake_is_replaced",
        "fault/test_faults.py::test_an_actor_that_just_leaves_is_noticed",
        "fault/test_faults.py::test_an_actor_that_hangs_in_its_first_reset_is_told_and_replaced",
    ],
    "an environment hangs in an evaluation": [
        "fault/test_supervision.py::"
        "test_an_evaluator_whose_environment_hangs_is_given_up_and_training_goes_on",
        "fault/test_supervision.py::"
        "test_a_run_ends_although_its_environment_hangs_in_the_last_games",
        "unit/test_evaluation_schedule.py::"
        "test_games_in_which_the_evaluator_was_lost_are_not_played_by_the_launcher",
        "unit/test_evaluation_schedule.py::test_a_signal_gives_up_the_last_games",
        "unit/test_evaluator_watch.py::"
        "test_one_in_a_step_for_too_long_is_asked_for_its_stack_and_given_up",
    ],
    "NaN or Inf in an observation or a reward": [
        "fault/test_faults.py::test_a_reward_that_is_no_number_costs_an_episode_and_is_named",
        "unit/test_env_gym.py::test_nan_and_inf_in_an_observation_name_environment_and_step",
    ],
    "NaN in a loss or a gradient": [
        "unit/test_skipping.py::test_no_step_is_made_of_a_gradient_that_is_not_finite",
        "unit/test_skipping.py::test_a_run_survives_and_goes_back_to_its_newest_checkpoint",
        "unit/test_skipping.py::test_a_loss_that_stays_nan_ends_the_run_with_a_diagnosis",
        "fault/test_faults.py::"
        "test_a_loss_that_stays_nan_goes_back_to_the_newest_checkpoint_once_and_then_ends",
    ],
    "wrong shape, type or action": [
        "process/test_bad_input.py::test_an_environment_that_does_not_keep_its_word_is_refused"
    ],
    "a slow learner": [
        "fault/test_slow_sides.py::test_a_slow_learner_paces_the_actors_and_the_run_says_so",
        "fault/test_faults.py::test_a_frozen_learner_stops_the_actors_at_the_bound",
    ],
    "slow environments": [
        "fault/test_slow_sides.py::test_slow_environments_do_not_make_the_learner_learn_more_often"
    ],
    "too little memory": [
        "process/test_bad_input.py::test_a_mistake_is_refused_before_anything_starts",
        "unit/test_resources.py::test_a_lack_of_memory_names_the_parts_and_what_to_lower",
    ],
    "disk full at a checkpoint": [
        "fault/test_checkpoint_faults.py::test_a_full_disk_is_a_loud_warning_and_training_goes_on",
        "fault/test_checkpoint_faults.py::test_a_disk_that_is_full_to_the_end_ends_no_run",
    ],
    "a corrupt or truncated checkpoint": [
        "fault/test_checkpoint_faults.py::"
        "test_a_run_whose_only_checkpoint_is_broken_is_refused_and_not_begun_anew",
        "unit/test_outside_files.py::"
        "test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before",
        "unit/test_checkpoint.py::test_the_newest_that_is_intact_is_used_and_the_others_are_named",
    ],
    "SIGTERM, Ctrl-C": [
        "fault/test_faults.py::test_a_signal_ends_the_run_cleanly",
        "fault/test_faults.py::test_a_second_signal_ends_the_run_at_once",
        "fault/test_faults.py::test_a_signal_at_any_moment_of_the_start_ends_the_command_in_order",
    ],
    "preemption": [
        "fault/test_checkpoint_faults.py::"
        "test_a_preempted_run_saves_itself_and_the_same_command_goes_on",
        "hosts/test_slurm_job.py::test_a_job_of_two_nodes_is_put_back_into_the_queue_and_goes_on",
    ],
    "a rank of MPI is lost": [
        "fault/test_mpi_faults.py::test_training_goes_on_without_a_killed_actor_and_says_so",
        "fault/test_mpi_faults.py::test_a_killed_learner_ends_the_run_and_the_same_command_goes_on",
    ],
    "a host is lost": [
        "hosts/test_hosts.py::test_a_lost_host_ends_the_run_and_the_same_command_goes_on"
    ],
    "a link is slow or cut": [
        "hosts/test_hosts.py::test_a_cut_link_ends_in_an_error_within_the_time_that_was_said",
        "fault/test_mpi_faults.py::"
        "test_a_learner_that_stops_for_less_than_link_seconds_does_no_harm",
        "fault/test_mpi_faults.py::test_a_learner_that_does_not_answer_ends_the_run_in_time",
    ],
    "a mistake in the config": [
        "unit/test_config_loader.py::test_mistakes_name_their_line_and_the_nearest_word",
        "process/test_bad_input.py::test_a_mistake_is_refused_before_anything_starts",
    ],
    "a checkpoint in a newer format": [
        "unit/test_checkpoint.py::"
        "test_a_newer_format_is_refused_with_the_reason_also_where_an_older_one_lies"
    ],
    "all of them, one after the other": [
        "fault/test_chaos_command.py::test_a_run_that_keeps_its_promises_passes",
        "unit/test_bench_soak.py::test_memory_that_grows_by_more_than_a_twentieth_is_seen",
    ],
}


@cache
def defined_in(file):
    """The tests that a file defines."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name for name in names if name.startswith("test_")}


@pytest.mark.parametrize("fault", PROMISES)
def test_every_promise_has_tests_that_are_there(fault):
    assert PROMISES[fault], "no test proves it"
    for each in PROMISES[fault]:
        file, _, name = each.partition("::")
        assert name in defined_in(file), f"{each} is not there: which test proves it now?"
