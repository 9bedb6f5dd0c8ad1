"""Which Lightning is a Trainer written for? What Lightning 2 refuses beside the settings of Apex says it: then `precision`
keeps the values that every version understands, 16 and 32.

Upgrades: https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.project import Project

# Arguments of a Trainer that Lightning 2 has no more, but for those that chose Apex.
GONE = frozenset(
    "add_row_log_interval auto_lr_find auto_scale_batch_size auto_select_gpus automatic_optimization checkpoint_callback "
    "default_save_path distributed_backend early_stop_callback flush_logs_every_n_steps gpus gradient_clip ipus "
    "log_gpu_memory log_save_interval max_nb_epochs min_nb_epochs move_metrics_to_cpu multiple_trainloader_mode nb_gpu_nodes "
    "nb_sanity_val_steps num_processes num_tpu_cores overfit_pct prepare_data_per_node print_nan_grads process_position "
    "progress_bar_refresh_rate reload_dataloaders_every_epoch replace_sampler_ddp resume_from_checkpoint row_log_interval "
    "show_progress_bar stochastic_weight_avg terminate_on_nan test_percent_check tpu_cores track_grad_norm "
    "train_percent_check truncated_bptt_steps use_amp val_percent_check weights_save_path weights_summary".split()
)
PARTS_GONE = (
    "logging",
    "metrics",
    "data_loader",
    "core.decorators",
    "root_module",
    "pt_overrides",
    "loggers.TestTubeLogger",
)
WHEN = {"use_amp": "0.9"}  # the others that chose Apex went with 2.0
MIXED: dict[str, str | int] = {"float16": "16-mixed", "bfloat16": "bf16-mixed"}
OLD_MIXED: dict[str, str | int] = {"float16": 16, "bfloat16": "bf16"}  # understood by Lightning 2, too
NATIVE_SINCE = (
    "a Lightning from 0.7.4 on runs autocast with a GradScaler for it, where torch is 1.6 or later, an older one Apex"
)


def refused(names: Iterable[str | None]) -> list[str]:
    """The arguments among some that Lightning 2 refuses."""
    return [name for name in names if name in GONE]


def gone_since(names: Iterable[str]) -> str:
    """Since when a Trainer has none of these: `use_amp went with Lightning 0.9`."""
    since: dict[str, list[str]] = {}
    for name in names:
        since.setdefault(WHEN.get(name, "2.0"), []).append(name)
    return " and ".join(f"{listed(found)} went with Lightning {when}" for when, found in since.items())


def listed(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def used_of_old(project: Project) -> str | None:
    """A part of Lightning that a program uses and Lightning 2 has not: such a program is written for another."""
    for module in project.modules:
        if "pytorch_lightning" not in module.text:
            continue
        used = {target for _, target in module.imported}
        used |= {
            module.qualify(n) or "" for n in module.of(ast.Attribute) if n.attr == "data_loader"
        }  # `@pl.data_loader`
        for name in sorted(used):
            if any(f"{name}.".startswith(f"pytorch_lightning.{part}.") for part in PARTS_GONE):
                return name
    return None
