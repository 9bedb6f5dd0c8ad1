"""Which tests are to see a fault of which file? The ones that call it directly, so that a mutant costs seconds."""

from __future__ import annotations

AUDIT = "amp_migrate/audit/"
RULES = "amp_migrate/rules/"
VERDICTS = "amp_migrate/verify/verdicts/"

STEPPING = (
    "tests/audit/test_stepping.py",
    "tests/audit/test_stepping_beside.py",
    "tests/audit/test_stepping_objects.py",
    "tests/audit/test_stepping_native.py",
    "tests/audit/test_clipped_steps.py",
    "tests/audit/test_stepping_faults.py",
)

# Checks of the audit with a test file of their name.
OWN = (
    *("apex_copies", "cast_without_apex", "chosen_sides", "class_tests", "clipped_beyond", "done_at_o0", "escapes"),
    *("exports", "first_gpu", "float_copies", "given_again", "half_averages", "half_copies", "half_inputs"),
    *("half_relied_on", "half_steps", "held_steps", "instances", "left_behind", "level_tests", "made_float"),
    *("made_losses",),
    *("native_side", "needs_apex", "never_updated", "none_given", "none_met", "own_entries", "pickled", "precision"),
    *("products", "scaled_at_o0", "settings_gone", "shared_layers", "sometimes", "static_scales", "unbound"),
    *("weight_cache", "without_apex", "wrapper_states"),
)

TARGETS: dict[str, tuple[str, ...]] = {
    **{f"{AUDIT}checks/{name}.py": (f"tests/audit/test_{name}.py",) for name in OWN},
    f"{AUDIT}checks/absent.py": ("tests/audit/test_absent.py", "tests/audit/test_processes.py"),
    f"{AUDIT}checks/always_on.py": ("tests/audit/test_runs.py", "tests/audit/test_library_runs.py"),
    f"{AUDIT}checks/assigned.py": (
        "tests/audit/test_assigned.py",
        "tests/audit/test_library_runs.py",
        "tests/audit/test_flags_and_keys.py",
        "tests/audit/test_sometimes.py",
    ),
    f"{AUDIT}checks/banned.py": (
        "tests/rules/test_bce.py",
        "tests/rules/test_bce_as_values.py",
        "tests/rules/test_bce_by_setting.py",
        "tests/rules/test_bce_in_containers.py",
    ),
    f"{AUDIT}checks/calls.py": ("tests/audit/test_calls.py", "tests/audit/test_indirect_calls.py"),
    f"{AUDIT}checks/caught.py": ("tests/audit/test_caught.py",),
    f"{AUDIT}checks/changed_dtypes.py": ("tests/audit/test_half_wrapped.py",),
    f"{AUDIT}checks/clipped.py": ("tests/audit/test_clipped.py",),
    f"{AUDIT}checks/done_without.py": ("tests/audit/test_without_apex.py",),
    f"{AUDIT}checks/empty_states.py": ("tests/rules/test_empty_states.py",),
    f"{AUDIT}checks/given_to_bases.py": ("tests/rules/test_given_to_bases.py",),
    f"{AUDIT}checks/guards.py": ("tests/audit/test_flags_and_keys.py",),
    f"{AUDIT}checks/half_weights.py": (
        "tests/rules/test_half_weights.py",
        "tests/audit/test_half_networks.py",
        "tests/audit/test_own_optimizers.py",
    ),
    f"{AUDIT}checks/heard.py": ("tests/rules/test_fired_events.py",),
    f"{AUDIT}checks/held_objects.py": ("tests/audit/test_flags_and_keys.py", "tests/audit/test_without_apex.py"),
    f"{AUDIT}checks/keys.py": ("tests/audit/test_flags_and_keys.py",),
    f"{AUDIT}checks/old_keys.py": ("tests/audit/test_keys_left_behind.py", "tests/audit/test_spoken_keys.py"),
    f"{AUDIT}checks/out_of_sight.py": (
        "tests/audit/test_given_away.py",
        "tests/audit/test_kept_by_bases.py",
        "tests/audit/test_methods_of_objects.py",
    ),
    f"{AUDIT}checks/passed_by.py": ("tests/rules/test_passed_by.py", "tests/audit/test_without_apex.py"),
    f"{AUDIT}checks/ranks.py": ("tests/audit/test_ranks.py",),
    f"{AUDIT}sites/one_rank.py": ("tests/audit/test_ranks.py",),
    f"{AUDIT}checks/renewed.py": (
        "tests/audit/test_renewed.py",
        "tests/audit/test_parameters_given_anew.py",
        "tests/audit/test_given_away.py",
    ),
    f"{AUDIT}checks/sequential_keys.py": ("tests/audit/test_sequential_keys.py", "tests/rules/test_sequential_keys.py"),
    f"{AUDIT}checks/set_up.py": ("tests/audit/test_runs.py", "tests/audit/test_switch.py"),
    f"{AUDIT}checks/state.py": ("tests/audit/test_state.py",),
    f"{AUDIT}checks/stepping.py": STEPPING,
    f"{AUDIT}checks/switch.py": ("tests/audit/test_switch.py",),
    f"{AUDIT}checks/turned_off.py": ("tests/rules/test_kept_branches.py",),
    f"{AUDIT}checks/unloaded.py": ("tests/rules/test_loaded_submodules.py",),
    f"{AUDIT}checks/unscaled.py": ("tests/audit/test_unscaled.py", "tests/audit/test_switch.py"),
    f"{AUDIT}checks/untouched.py": ("tests/audit/test_untouched.py",),
    f"{AUDIT}checks/whole.py": (
        "tests/audit/test_whole.py",
        "tests/audit/test_processes.py",
        "tests/audit/test_runs.py",
    ),
    f"{AUDIT}sites/last_turn.py": ("tests/audit/test_last_turn.py",),
    f"{AUDIT}sites/new_networks.py": (
        "tests/audit/test_renewed.py",
        "tests/audit/test_parameters_given_anew.py",
        "tests/audit/test_given_away.py",
    ),
    f"{AUDIT}stepping/bounds.py": ("tests/audit/test_scaled_bounds.py", "tests/rules/test_clipped_each.py"),
    f"{AUDIT}stepping/exchanged.py": ("tests/audit/test_exchanged.py",),
    f"{AUDIT}stepping/gradients.py": ("tests/audit/test_stepping.py", "tests/audit/test_registered_readers.py"),
    f"{AUDIT}stepping/left_over.py": ("tests/audit/test_left_over.py",),
    f"{AUDIT}stepping/machine.py": STEPPING,
    f"{AUDIT}stepping/traces.py": STEPPING,
    f"{AUDIT}stepping/turns.py": ("tests/audit/test_left_over.py", "tests/audit/test_flushes.py"),
    f"{AUDIT}unset/no_longer.py": ("tests/audit/test_no_longer.py",),
    f"{AUDIT}unset/untested.py": ("tests/audit/test_untested.py",),
    f"{RULES}casts/half_parts.py": ("tests/rules/test_half_parts.py",),
    f"{RULES}cleanup/idle_options.py": ("tests/rules/test_idle_options.py", "tests/rules/test_computed_flags.py"),
    f"{RULES}cleanup/only_told.py": ("tests/rules/test_idle_options.py",),
    f"{RULES}scale/clamp.py": ("tests/rules/test_clamp.py",),
    f"{RULES}scale/run_time_scale.py": ("tests/rules/test_run_time_scale.py",),
    f"{RULES}setup/rebinding.py": (
        "tests/rules/test_rebinding.py",
        "tests/rules/test_assignment.py",
        "tests/rules/test_initialize.py",
        "tests/rules/test_several_setups.py",
    ),
    f"{RULES}stepping/accumulation.py": ("tests/rules/test_accumulation.py",),
    f"{RULES}stepping/zero_grad.py": ("tests/rules/test_zero_grad.py",),
    f"{VERDICTS}cost.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}curve.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}known.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}precision.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}scale.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}structure.py": ("tests/verify/test_verdicts.py",),
    f"{VERDICTS}verdict.py": ("tests/verify/test_verdicts.py",),
}
