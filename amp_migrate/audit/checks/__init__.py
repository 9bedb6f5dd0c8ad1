"""What is checked of every migration, one file a check.

A check is a module with its documented `CODES` and `check(review)`, which gives doubts. Its docstring says what it proves
and what it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from amp_migrate.audit.checks import (
    absent,
    always_on,
    apex_copies,
    assigned,
    banned,
    calls,
    cast_without_apex,
    caught,
    changed_dtypes,
    chosen_sides,
    class_tests,
    clipped,
    clipped_beyond,
    done_at_o0,
    done_without,
    empty_states,
    escapes,
    exports,
    first_gpu,
    float_copies,
    given_again,
    given_to_bases,
    guards,
    half_averages,
    half_copies,
    half_inputs,
    half_relied_on,
    half_steps,
    half_weights,
    heard,
    held_objects,
    held_steps,
    instances,
    keys,
    left_behind,
    level_tests,
    made_float,
    made_losses,
    native_side,
    needs_apex,
    never_set_up,
    never_updated,
    none_given,
    none_met,
    old_keys,
    out_of_sight,
    own_entries,
    pickled,
    precision,
    products,
    ranks,
    renewed,
    scaled_at_o0,
    sequential_keys,
    set_up,
    shared_layers,
    some_networks,
    sometimes,
    state,
    static_scales,
    stepping,
    switch,
    turned_off,
    unbound,
    unloaded,
    unscaled,
    untouched,
    weight_cache,
    whole,
    without_apex,
    wrapper_states,
)
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code


class Check(Protocol):
    __name__: str

    @property
    def CODES(self) -> tuple[Code, ...]: ...

    def check(self, review: Review) -> Iterable[Doubt]: ...


# Those that refuse nothing: asked last, once nothing is left that the others refuse.
TELLING: tuple[Check, ...] = (
    empty_states,
    *(
        always_on,
        apex_copies,
        cast_without_apex,
        chosen_sides,
        caught,
        changed_dtypes,
        clipped_beyond,
        done_at_o0,
        done_without,
        exports,
        first_gpu,
        float_copies,
        half_averages,
        half_copies,
    ),
    *(
        given_again,
        given_to_bases,
        half_inputs,
        half_relied_on,
        half_steps,
        heard,
        none_met,
        instances,
        keys,
        left_behind,
        level_tests,
        made_float,
        made_losses,
        never_set_up,
        never_updated,
        out_of_sight,
        own_entries,
        pickled,
        precision,
        products,
        ranks,
    ),
    *(
        renewed,
        scaled_at_o0,
        sequential_keys,
        shared_layers,
        some_networks,
        turned_off,
        unloaded,
        unscaled,
        weight_cache,
    ),
)

CHECKS: tuple[Check, ...] = (
    *(
        absent,
        assigned,
        banned,
        calls,
        class_tests,
        escapes,
        guards,
        half_weights,
        held_objects,
        held_steps,
        native_side,
    ),
    *(
        needs_apex,
        none_given,
        old_keys,
        set_up,
        sometimes,
        state,
        static_scales,
        stepping,
        switch,
        unbound,
        untouched,
        whole,
        without_apex,
        wrapper_states,
        clipped,
    ),
    *TELLING,
)

__all__ = ["CHECKS", "TELLING", "Check"]
