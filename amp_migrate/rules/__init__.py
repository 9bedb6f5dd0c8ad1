"""What is done about each Apex construct, one file a construct.

A rule is a module with its documented `CODES` and an `apply`. Unit rules see one migration unit; file rules see one file.
Their order matters: the scaler is passed along after every rule that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from amp_migrate.options import Options
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.casts import autograd_functions, half_weights, in_place, level_tests, traced_inputs
from amp_migrate.rules.casts import registered as casts
from amp_migrate.rules.cleanup import (
    commands,
    idle_options,
    idle_parameters,
    idle_settings,
    imports,
    option_texts,
    said_texts,
    skipped_tests,
    told_versions,
)
from amp_migrate.rules.frameworks import catalyst, deepspeed, ignite, lightning, mmengine, others, transformers
from amp_migrate.rules.gradients import gradient_penalty, master_params, multi_tensor, o2_gradients, stash
from amp_migrate.rules.handover import amp_values, carried_amp, from_users, process_wide, scaler_passing, switches_told
from amp_migrate.rules.migration import Migration, Output
from amp_migrate.rules.older import fp16_optimizer, fp16_utils, inner_clip, never_made
from amp_migrate.rules.older import handle as legacy_handle
from amp_migrate.rules.parts import carried_out as native_parts
from amp_migrate.rules.regions import (
    autocast,
    batches,
    bce,
    captured,
    double_inputs,
    float_operations,
    op_lists,
    outputs,
    to_host,
)
from amp_migrate.rules.scale import half_losses, loss_scale, scale_loss, sharded, shared
from amp_migrate.rules.setup import (
    amp_switch,
    announced,
    dynamic,
    initialize,
    left_early,
    old_torch,
    settle,
    unread,
    until_configured,
)
from amp_migrate.rules.state import asked, spoken
from amp_migrate.rules.state import save as state
from amp_migrate.rules.stepping import (
    accumulation,
    divided,
    horovod,
    idle_optimizers,
    overridden_backward,
    skipped_step,
    step,
    two_pass,
    zero_grad,
)
from amp_migrate.rules.torch_names import torch_cuda_amp
from amp_migrate.rules.twin import branch as native_branch

UNIT_RULES: tuple[Callable[[Migration], None], ...] = (
    settle.apply,
    captured.apply,
    initialize.apply,
    carried_amp.apply,
    until_configured.apply,
    fp16_utils.unit,
    half_weights.apply,
    traced_inputs.apply,
    fp16_optimizer.apply,
    loss_scale.apply,  # before what asks for the scaler: private state that nothing can replace is the reason to tell
    scale_loss.apply,
    half_losses.apply,
    two_pass.apply,
    step.apply,
    divided.apply,
    inner_clip.apply,
    overridden_backward.apply,
    horovod.apply,
    accumulation.apply,
    shared.apply,
    zero_grad.apply,
    o2_gradients.apply,
    skipped_step.apply,
    idle_optimizers.apply,
    gradient_penalty.apply,
    master_params.apply,
    state.apply,
    amp_switch.apply,
    stash.apply,
    sharded.apply,
    casts.apply,
    autocast.apply,
    left_early.apply,
    casts.regions,
    outputs.apply,
    float_operations.where_seen,
    to_host.where_seen,
    bce.apply,
    in_place.apply,
    op_lists.apply,
    autograd_functions.apply,
    level_tests.apply,
    batches.apply,
    double_inputs.apply,
    settle.folds,
    legacy_handle.apply,
    amp_values.apply,
    spoken.apply,
    scaler_passing.apply,
    unread.apply,
    process_wide.apply,
    from_users.apply,
    announced.apply,
    asked.follow,  # last: in all that is emitted
)

FileRule = Callable[[Project, Module, Options, Output], None]

FILE_RULES: tuple[FileRule, ...] = (
    skipped_tests.apply,
    old_torch.apply,
    dynamic.apply,
    fp16_utils.apply,
    never_made.apply,
    torch_cuda_amp.apply,
    multi_tensor.apply,
    lightning.apply,
    transformers.apply,
    deepspeed.apply,
    ignite.apply,
    catalyst.apply,
    mmengine.apply,
    others.apply,
    native_parts.apply,  # it looks at which names the others have left without use
    told_versions.apply,  # last: whether anything else is left
)

fold, clean = imports.fold, imports.clean


def finish(project: Project, targets: Collection[Module], output: Output) -> None:
    """What can only be told once every unit and file has its edits."""
    switches_told.finish(project, output)
    idle_parameters.apply(project, targets, output)
    idle_options.apply(project, targets, output)
    idle_settings.apply(project, targets, output)
    option_texts.apply(project, targets, output)
    said_texts.apply(targets, output)
    commands.apply(project, targets, output)


# Whole units that something else takes over: a native branch beside Apex (see the engine), or a framework's trainer.
TAKEN_OVER: tuple[Callable[[Migration], bool], ...] = (ignite.unit,)

__all__ = ["FILE_RULES", "TAKEN_OVER", "UNIT_RULES", "FileRule", "clean", "finish", "fold", "native_branch"]
