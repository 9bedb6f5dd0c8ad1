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
    *("apex_copies", "class_tests", "clipped_beyond", "escapes", "exports", "first_gpu", "float_copies", "given_again"),
    *(
        "half_averages",
        "half_copies",
        "half_inputs",
        "half_steps",
        "held_steps",
        "instances",
        "left_behind",
        "level_tests",
    ),
    *(
        "native_side",
        "needs_apex",
        "never_updated",
        "none_given",
        "none_met",
        "own_entries",
        "precision",
    ),
    *(
        "products",
        "scaled_at_o0",
        "settings_gone",
        "shared_layers",
        "sometimes",
        "static_scales",
        "unbound",
        "weight_cache",
    ),
    "without_apex",
)

TARGETS: dict[str, tuple[str, ...]] = {
    **{f"{AUDIT}checks/{name}.py": (f"tests/audit/test_{name}.py",) for name in OWN},
    f"{AUDIT}checks/absent.py": ("tests/audit/test_absent.py", "tests/audit/test_processes.py"),
    f"{AUDIT}checks/assigned.py": (
        "tests/audit/test_assigned.py",
        "tests/audit/test_library_runs.py",
        "tests/audit/test_flags_and_keys.py",
        "tests/audit/test_sometimes.py",
    ),
    f"{AUDIT}checks/calls.py": ("tests/audit/test_calls.py", "tests/audit/test_indirect_calls.py"),
    f"{AUDIT}checks/caught.py": ("tests/audit/test_caught.py",),
    f"{AUDIT}checks/clipped.py": ("tests/audit/test_clipped.py",),
    f"{AUDIT}checks/out_of_sight.py": (
        "tests/audit/test_given_away.py",
        "tests/audit/test_kept_by_bases.py",
        "tests/audit/test_methods_of_objects.py",
    ),
    f"{AUDIT}checks/ranks.py": ("tests/audit/test_ranks.py",),
    f"{AUDIT}checks/renewed.py": (
        "tests/audit/test_renewed.py",
        "tests/audit/test_parameters_given_anew.py",
        "tests/audit/test_given_away.py",
    ),
    f"{AUDIT}checks/state.py": ("tests/audit/test_state.py",),
    f"{AUDIT}checks/stepping.py": STEPPING,
    f"{AUDIT}checks/switch.py": ("tests/audit/test_switch.py",),
    f"{AUDIT}checks/unscaled.py": ("tests/audit/test_unscaled.py", "tests/audit/test_switch.py"),
    f"{AUDIT}checks/untouched.py": ("tests/audit/test_untouched.py",),
    f"{AUDIT}checks/whole.py": (
        "tests/audit/test_whole.py",
        "tests/audit/test_processes.py",
        "tests/audit/test_runs.py",
    ),
    f"{AUDIT}sites/new_networks.py": (
        "tests/audit/test_renewed.py",
        "tests/audit/test_parameters_given_anew.py",
        "tests/audit/test_given_away.py",
    ),
    f"{AUDIT}stepping/gradients.py": ("tests/audit/test_stepping.py", "tests/audit/test_registered_readers.py"),
    f"{AUDIT}stepping/machine.py": STEPPING,
    f"{AUDIT}stepping/traces.py": STEPPING,
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
