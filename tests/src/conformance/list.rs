//! Lists every case once. A test in `layers.rs` compares these lists with the sources.

/// Instantiates the store's suite: `store_conformance!(crate::open)`, with `open` an async
/// function that returns a `Box<dyn Fixture>`.
#[macro_export]
macro_rules! store_conformance {
    ($open:path) => {
        $crate::conformance_cases! { $open, run_store, store:
            anchors {
                an_absence_guard_holds_while_no_row_matches,
                a_row_inserted_before_the_commit_fails_the_absence_guard,
                an_absence_guard_leaves_out_every_row_that_it_names,
                an_absence_guard_that_fixes_no_anchor_is_a_violation,
                an_absence_guard_without_the_row_of_its_anchor_fails,
                at_most_so_many_rows_match_under_an_anchor,
            }
            audit {
                the_books_count_every_state_per_task_and_tenant,
                an_audit_finds_a_lost_history_row,
                an_audit_finds_a_gap_in_a_stream,
                an_audit_finds_a_lost_timer,
                an_audit_finds_a_wrong_counter,
                an_audit_finds_a_wrong_number_of_changed_rows,
                an_audit_finds_a_run_that_counts_other_items,
            }
            books {
                history_says_what_became_of_each_item_and_by_whom,
                history_is_found_by_task_tenant_key_and_run,
                the_rows_of_a_target_are_found_behind_newer_ones,
                depths_count_what_waits_and_since_when,
                nodes_report_themselves,
                nodes_are_forgotten,
            }
            brakes {
                a_commit_beyond_the_brake_of_its_run_changes_nothing,
                only_rows_that_were_deleted_are_counted,
                rows_of_dependants_are_counted_by_their_collection,
                a_run_without_a_brake_is_not_held,
                a_brake_is_set_once_and_under_the_fence,
                a_commit_that_would_set_aside_too_many_items_changes_nothing,
                a_resumption_sets_the_brakes_anew,
                a_resumption_leaves_the_brakes_of_runs_that_are_over,
                a_collection_is_estimated,
                brakes_are_pruned_with_their_run,
                planned_items_are_discarded_and_may_be_planned_again,
                a_batch_is_left_out_whose_items_were_discarded,
            }
            budget {
                rows_are_granted_at_their_rate,
                a_large_batch_is_granted_and_paid_off,
                an_idle_budget_keeps_one_second,
                a_budget_is_one_tasks,
                a_budget_outlives_the_process,
                strain_is_measured_beside_the_work,
            }
            changes {
                every_kind_of_value_comes_back_as_it_was,
                a_column_that_is_not_given_is_null,
                an_upsert_keeps_the_columns_it_does_not_name,
                an_update_touches_one_row_and_the_named_columns,
                an_increment_adds,
                a_delete_tolerates_a_row_that_is_gone,
                changes_take_effect_in_their_order,
                changes_stay_within_the_tenant_of_the_item,
                a_collection_without_tenants_is_shared,
                messages_are_emitted_with_the_commit_only,
            }
            claims {
                the_table_says_who_owns_every_partition,
                a_claim_needs_the_epoch_that_was_seen,
                an_older_ring_takes_nothing,
                a_claimed_partition_is_executed_by_its_new_owner_only,
                arrivals_tell_what_was_planned_or_revived_since,
                a_mark_that_the_store_does_not_know_means_that_anything_may_have_come,
            }
            commands {
                a_command_waits_until_a_leader_applies_it,
                commands_are_listed_newest_first,
                a_command_is_applied_once,
                a_command_that_was_lost_is_not_applied_in_place_of_another,
                a_trigger_starts_a_run,
                a_pause_holds_until_it_is_resumed,
                a_cancelled_run_ends_with_its_last_item,
                cancelling_a_run_that_has_ended_changes_nothing,
            }
            dead_letters {
                a_dead_letter_keeps_its_item_and_every_error,
                dead_letters_are_selected_by_id_task_and_error,
                a_retried_dead_letter_waits_with_fresh_attempts,
                a_dead_letter_whose_identity_waits_stays_open,
                a_discarded_dead_letter_is_history_with_who_and_why,
                another_number_of_dead_letters_than_expected_is_refused,
                a_discarded_item_is_not_planned_again_until_its_version_changes,
                every_discarded_version_of_an_item_is_blocked,
                a_later_commit_lifts_a_discard,
                a_discard_beside_a_commit_of_its_item_blocks_nothing,
                a_later_commit_resolves_an_open_dead_letter,
                a_later_skip_leaves_a_dead_letter_open,
                a_command_over_many_letters_takes_several_transactions,
                a_letter_that_is_set_aside_during_a_command_is_left_alone,
                a_retry_in_several_transactions_takes_an_identity_once,
                a_discard_in_several_transactions_leaves_out_what_was_resolved,
                a_command_that_is_given_up_tells_what_it_has_done,
                dead_letters_are_read_in_pages,
                open_dead_letters_are_grouped_by_task_and_last_error,
            }
            deaths {
                the_items_of_a_dead_node_have_one_death_more,
                the_batches_of_the_living_are_left_alone,
                a_stale_leader_counts_no_death,
                an_abandoned_batch_counts_no_death,
                a_committed_batch_counts_no_death,
                an_item_that_is_done_has_no_death,
                deaths_follow_an_item_into_the_retries,
                a_death_that_was_counted_meanwhile_is_kept,
            }
            dedup {
                the_identity_is_task_tenant_key_and_due,
                equal_identities_within_a_page_count_once,
                an_item_among_the_retries_is_not_planned_again,
                an_unsettled_skip_blocks_nothing,
                a_settled_skip_blocks_its_version_only,
                a_settled_skip_does_not_block_another_due_time,
                a_later_commit_lifts_a_settled_skip,
                an_open_dead_letter_blocks_its_version_only,
            }
            feed {
                an_entered_message_is_delivered_as_any_other,
                no_two_names_are_one_sequence,
                a_number_is_stored_once_and_in_its_turn,
                numbers_belong_to_a_topic_a_tenant_and_a_key,
                a_number_outlives_its_message,
                a_number_that_two_send_at_once_is_stored_once,
                inserted_messages_are_moved_in_their_order,
                topics_of_inserted_messages_are_told,
                a_stale_leader_moves_no_message,
                what_waits_of_the_product_is_counted,
            }
            fence {
                a_raise_owns_all_partitions_under_new_epochs,
                only_a_higher_term_raises_the_fence,
                a_raise_can_take_over_some_partitions_only,
                a_stale_leader_can_write_nothing,
                the_right_term_with_a_foreign_token_is_fenced,
                a_leader_writes_only_after_its_raise,
                the_fence_survives_a_restart,
                every_raise_is_remembered_newest_first,
            }
            guards {
                comparisons_mean_what_they_say_for_every_ordered_kind,
                every_kind_can_be_compared_for_equality,
                null_equals_null_and_has_no_order,
                a_row_is_missing_in_the_tenant_of_the_item,
                at_least_so_many_rows_match,
                a_column_is_tested_by_lists_beginnings_and_other_columns,
                a_test_that_does_not_fit_its_column_is_refused,
                a_guard_on_columns_needs_the_row_in_its_tenant,
                rows_exist_in_the_tenant_of_the_item,
                all_guards_hold_or_nothing_is_changed,
                a_guard_sees_what_was_written_before_the_commit,
                an_idle_guard_holds_for_what_the_caller_has_seen_idle,
                an_idle_guard_reads_the_activity_of_its_own_store,
            }
            images {
                images_restore_everything_an_item_changed,
                an_item_changes_one_row_as_often_as_it_may,
                images_are_kept_only_where_they_are_asked_for,
            }
            infrastructure {
                a_commit_is_found_by_its_mark,
                a_mark_that_was_not_found_is_given_up,
                a_known_mark_is_not_applied_again,
                an_unknown_result_is_found_out,
                a_commit_that_nobody_waits_for_is_looked_up,
                a_store_that_is_busy_or_away_costs_no_attempt,
                everything_survives_a_restart,
            }
            lines {
                lines_are_numbered_within_their_run,
                nothing_after_the_last_line_is_nothing,
                a_run_keeps_its_newest_lines,
                lines_of_an_unknown_run_are_left_out,
                lines_go_with_their_run,
            }
            mapping {
                the_mapping_of_the_tables_has_no_fault,
                each_fault_of_a_mapping_is_named_by_its_place,
                a_new_mapping_is_in_force_at_once,
            }
            outbox {
                a_claim_records_results_and_finds_what_they_make_due,
                a_message_that_waits_for_too_long_is_due,
                a_claimed_message_is_hidden_for_the_hold,
                an_attempt_that_could_not_be_made_is_given_back,
                messages_of_a_key_go_one_after_the_other,
                messages_of_a_key_are_numbered_without_gaps,
                messages_of_two_tasks_share_the_sequence_of_their_key,
                what_a_broker_gets_is_read_in_the_order_of_each_key,
                what_is_held_is_left_out_of_what_a_broker_gets,
                the_results_of_a_broker_are_recorded_once,
                what_is_given_up_makes_way,
                topics_say_how_many_messages_wait,
                topics_say_what_was_given_up,
                what_waits_for_its_next_attempt_can_be_tried_now,
                what_no_later_message_has_overtaken_is_tried_again,
                what_is_discarded_makes_way,
                what_is_discarded_in_the_middle_leaves_the_order,
                what_is_discarded_takes_its_wait_along,
                what_is_tried_again_may_be_before_what_is_gone,
                a_topic_changes_from_a_broker_to_http,
                keys_take_turns,
                what_was_given_up_is_tried_again_unless_a_later_one_has_followed,
                claims_are_bounded_by_topic,
                a_topic_that_is_not_asked_for_stays_in_the_outbox,
                the_oldest_that_wait_can_be_removed,
                what_has_no_route_is_forgotten_with_the_history,
                what_has_no_route_goes_oldest_first,
                a_stale_leader_neither_claims_nor_marks,
                an_attempt_that_is_not_the_latest_changes_nothing,
                a_task_sees_what_became_of_its_own_messages,
                a_snapshot_holds_deliveries_as_they_were,
                deliveries_are_bounded_as_every_read,
                any_key_is_delivered,
                messages_at_their_end_are_pruned_with_the_history,
                what_waits_of_a_topic_is_counted_up_to_a_bound,
                the_store_keeps_its_identity_and_its_attempts,
            }
            ownership {
                a_batch_under_an_old_epoch_is_left_out,
                another_node_under_the_right_epoch_is_left_out,
                a_timer_under_an_old_epoch_is_left_out,
                neighbours_of_a_stream_that_is_left_out_commit,
            }
            planning {
                an_item_is_what_its_candidate_was,
                an_item_may_have_no_tenant,
                a_due_time_makes_a_timer_even_if_it_has_passed,
                a_quota_leaves_the_rest_and_the_cursor,
                a_quota_that_is_just_enough_moves_the_cursor,
                cursors_belong_to_a_task_and_a_tenant,
                a_run_counts_what_its_pages_found,
                an_empty_page_plans_nothing,
            }
            dependants {
                rows_go_with_the_row_that_they_refer_to,
                each_item_of_a_batch_takes_its_own_dependants,
                rows_that_stay_are_counted_without_dependants,
                what_goes_with_a_row_stays_with_it,
            }
            prune {
                the_audit_balances_after_pruning,
                the_cursor_of_a_tenant_is_forgotten_once_nobody_visits_it,
                images_are_pruned_by_their_tasks_retention,
                images_of_undos_are_pruned_with_those_of_the_task,
                pruning_is_bounded_and_goes_on,
                a_run_stays_while_something_refers_to_it,
                a_settled_skip_is_forgotten_with_the_history,
                the_bound_on_images_is_for_each_task,
                the_newest_terms_stay_however_old,
                connections_that_have_long_ended_are_forgotten,
            }
            purge {
                purged_rows_do_not_come_back_and_the_others_do,
                what_belonged_to_a_purged_row_stays_away,
                nothing_is_kept_of_an_item_whose_rows_are_all_purged,
                a_place_that_has_changed_since_is_left_as_it_is,
                a_purge_of_many_places_takes_several_transactions,
                rows_beside_purged_ones_are_undone_whatever_was_done_to_them,
            }
            range_changes {
                the_parts_of_a_range_are_its_pages,
                a_range_of_an_index_of_some_rows_changes_no_others,
                rows_of_a_range_are_judged_in_the_commit,
                columns_of_a_range_are_set,
                columns_of_a_range_are_added_to,
                a_range_without_rows_is_skipped,
                rows_that_stay_are_counted,
                rows_of_a_range_are_moved,
                rows_are_moved_only_where_they_can_be,
                ranges_of_one_batch_take_effect_one_after_the_other,
                a_range_of_a_key_of_two_columns_is_changed,
                a_range_that_is_none_changes_nothing,
            }
            ranges {
                a_range_is_the_same_in_pages_of_any_size,
                a_read_by_an_index_of_some_rows_returns_no_others,
                a_key_of_two_columns_is_read_by_prefix_and_bounds,
                a_range_over_instants_is_inclusive,
                a_page_is_bounded_by_bytes,
                paging_tolerates_rows_that_come_and_go,
                a_range_counts_at_least_what_it_returns,
                a_range_beyond_its_index_is_invalid,
                a_cursor_of_any_bytes_is_invalid_or_stays_with_its_tenant,
            }
            read_sets {
                a_read_set_is_complete_while_every_row_is_there,
                exactly_the_rows_that_were_read_are_deleted,
                deleting_a_read_set_tolerates_rows_that_are_gone,
                a_read_set_may_be_large,
            }
            reviews {
                a_run_is_held_by_its_mode,
                nothing_of_a_held_run_is_committed,
                an_approval_releases_a_run,
                a_rejection_discards_what_was_planned,
                a_held_run_is_stopped_while_it_plans,
                a_discard_of_everything_rejects_reviews,
                reviews_are_listed_newest_first,
                reviews_are_pruned_with_their_run,
                a_commit_is_tried_and_taken_back,
            }
            settling {
                one_batch_mixes_tasks_streams_timers_and_retries,
                a_failed_guard_goes_on_as_its_decision_says,
                a_violation_goes_on_as_its_decision_says,
                notes_are_kept_with_the_history_of_a_commit,
                an_empty_batch_commits_nothing,
                a_batch_may_hold_a_thousand_items,
            }
            slots {
                a_run_starts_with_its_definition,
                a_slot_that_ran_gets_the_id_of_its_run,
                a_decision_that_is_repeated_changes_nothing,
                a_late_copy_of_a_decision_changes_nothing,
                a_slot_has_one_scheduled_run,
                equal_consecutive_outcomes_share_a_row,
                slots_are_found_by_the_time_they_touch,
                task_states_are_stored_and_survive_a_restart,
                the_last_scan_that_came_to_its_end_is_found,
                a_run_without_items_ends_with_its_scan,
                the_scan_of_another_task_is_not_ended,
                a_scan_whose_pages_are_lost_is_not_ended,
                a_run_ends_with_its_last_log_item,
                a_run_does_not_end_before_its_scan,
                timers_outlive_their_run,
                the_end_of_a_scan_keeps_its_error_and_the_tenant_cursor,
                a_page_for_no_run_or_after_its_scan_is_invalid,
            }
            snapshots {
                a_snapshot_does_not_see_later_commits,
                rows_are_read_by_key_in_the_order_asked_for,
                a_read_sees_the_rows_of_its_tenant_only,
                a_page_ends_where_so_many_rows_were_looked_at,
                a_read_returns_so_many_bytes_and_no_more,
                a_read_of_what_is_not_mapped_is_invalid,
                a_key_of_several_tenants_is_not_read_without_a_tenant,
            }
            streams {
                a_stream_is_numbered_without_gaps,
                each_task_has_its_own_stream,
                the_backlog_is_found_by_partition,
                a_read_of_the_log_is_bounded,
                an_acknowledgement_moves_the_cursor,
                an_empty_stream_goes_on_where_it_was,
                a_stale_cursor_leaves_its_stream_out,
                an_item_that_is_not_the_one_at_its_place_is_left_out,
                an_item_beyond_the_end_leaves_its_stream_out_alone,
                an_item_lost_inside_a_stream_leaves_its_stream_out_alone,
                a_batch_that_skips_an_item_is_left_out,
                a_gap_in_the_log_is_named,
                a_broken_stream_holds_back_itself_alone,
                a_repair_keeps_what_is_there_and_writes_off_the_rest,
                a_repair_writes_off_lost_timers,
                a_stream_that_has_lost_everything_is_broken,
                a_read_says_which_streams_it_has_looked_at,
                there_is_nothing_to_repair_where_no_stream_is_broken,
                a_stream_whose_position_is_lost_goes_on_after_a_repair,
                positions_that_are_lost_while_nothing_waits_are_restored,
                positions_that_were_used_twice_are_made_up_for,
            }
            tenants {
                tenants_come_once_in_order_if_they_have_a_row,
                tenants_are_paged_by_the_last_one,
                tenants_need_a_row_that_meets_the_conditions,
                a_collection_without_tenants_has_no_cycle,
            }
            timers {
                a_timer_is_never_committed_before_it_is_due,
                what_was_decided_for_later_is_not_committed_before,
                a_timer_is_acknowledged_once,
                timers_are_read_in_the_order_of_their_due_times,
                what_waits_is_read_by_task,
                a_timer_may_be_due_before_the_epoch,
                a_retry_keeps_counters_and_errors,
                a_retry_of_a_retry_has_another_id,
                a_timer_that_fails_becomes_a_retry_of_the_same_identity,
                retries_are_read_in_the_order_of_their_times,
            }
            undo {
                whatever_an_item_has_done_is_taken_back_and_can_be_undone,
                ranges_that_were_deleted_set_or_moved_are_taken_back,
                what_somebody_has_changed_since_stays_unless_it_is_forced,
                an_inserted_row_is_removed_unless_it_was_changed,
                undo_twice_changes_nothing,
                what_was_taken_back_is_put_back_again,
                chosen_rows_come_back_alone_and_the_others_later,
                what_went_with_a_chosen_row_comes_back_with_it,
                nothing_is_told_of_an_undo_that_changes_nothing,
                an_item_comes_back_as_a_whole_or_not_at_all,
                families_are_removed_as_a_whole_or_stay,
                rows_of_others_are_never_deleted_with_those_that_are_removed,
                rows_of_a_parent_that_stays_away_stay_away,
                rows_that_went_with_others_come_back_after_them,
                an_archived_row_that_was_changed_stays_archived,
                what_is_kept_no_longer_is_said,
                rows_of_a_collection_that_is_gone_stay_kept,
                an_undone_item_is_not_planned_again_until_its_version_changes,
                what_was_undone_may_be_planned_again_on_request,
                images_say_how_their_rows_were_left,
                what_an_item_was_given_is_kept_with_its_rows,
            }
            unqueued {
                an_item_that_was_never_queued_is_planned_and_ended_by_its_commit,
                one_whose_guard_fails_changes_nothing,
                one_below_the_fence_is_refused,
                what_waits_under_the_same_identity_is_left_alone,
                one_that_does_not_end_is_invalid,
            }
            violations {
                a_violation_fails_the_item_and_takes_its_changes_back,
                null_cannot_be_incremented,
                a_guard_on_what_is_not_mapped_is_a_violation,
                an_item_without_a_tenant_reaches_no_row_that_has_one,
                a_violation_leaves_its_neighbours_alone,
            }
        }
    };
}

/// Instantiates the activity's suite.
#[macro_export]
macro_rules! activity_conformance {
    ($open:path) => {
        $crate::conformance_cases! { $open, run_with:
            activity {
                an_unobserved_key_is_unknown_until_the_timeout_has_passed,
                the_last_disconnect_starts_the_idle_timer,
                a_connection_stops_the_idle_timer,
                the_same_connection_counts_once,
                an_unknown_disconnect_changes_nothing,
                a_connection_without_heartbeat_expires,
                a_heartbeat_opens_what_is_not_known,
                states_come_in_the_order_of_their_keys,
            }
        }
    };
}

/// Instantiates the coordination's suite.
#[macro_export]
macro_rules! coordination_conformance {
    ($open:path) => {
        $crate::conformance_cases! { $open, run_with:
            coordination {
                one_node_wins_and_the_other_learns_who,
                a_second_campaign_of_the_leader_finds_its_own_success,
                a_renewed_lease_does_not_expire,
                an_expired_lease_is_lost_and_free,
                a_resigned_lease_is_free_at_once,
                resigning_a_lost_lease_changes_nothing,
                a_campaign_wins_a_term_above_the_one_it_names,
                a_leader_below_the_term_it_names_wins_a_later_one,
                a_change_is_announced,
            }
        }
    };
}

/// Instantiates the membership's suite.
#[macro_export]
macro_rules! members_conformance {
    ($open:path) => {
        $crate::conformance_cases! { $open, run_with:
            members {
                a_node_that_joined_is_a_member,
                a_member_says_something_new_by_joining_again,
                the_ring_is_made_of_active_members,
                a_member_that_is_kept_alive_stays,
                a_member_that_is_not_kept_alive_is_gone,
                joining_again_prolongs_the_lease,
                a_member_that_left_is_gone_at_once,
                a_state_is_set_by_anyone,
                a_member_that_misses_the_store_says_so_until_it_says_something_else,
                a_member_that_stands_aside_has_no_part_of_the_ring,
                a_second_node_of_one_name_waits_and_is_then_refused,
                a_new_incarnation_follows_a_dead_one,
                whoever_leaves_leads_no_longer,
                a_candidate_that_has_not_joined_is_joining,
                a_change_of_the_members_is_announced,
            }
        }
    };
}

/// A `#[test]` for each case of each subject.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_cases {
    ($open:path, $run:ident, store: $($subject:ident { $($case:ident,)* })*) => {
        $(mod $subject {
            $(#[test]
            fn $case() {
                $crate::conformance::$run($open, $crate::conformance::store::$subject::$case);
            })*
        })*
    };
    ($open:path, $run:ident: $subject:ident { $($case:ident,)* }) => {
        $(#[test]
        fn $case() {
            $crate::conformance::$run($open, $crate::conformance::$subject::$case);
        })*
    };
}
