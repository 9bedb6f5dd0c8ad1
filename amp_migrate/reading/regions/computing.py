"""Statements that compute what autocast casts, and calls that compute nothing of it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.reading.program.definitions import called_name, dotted
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.values.tensors import SELECTING_METHODS

# Calls that compute nothing Apex would have cast: on a loss that is there, and on the way to a batch.
TRIVIAL_CALLS = frozenset(
    """
    add_scalar all_reduce append argmax argmin backward barrier bool clone cpu data debug detach dict dim enumerate float format
    get getattr hasattr info int isinstance item items join keys len list log max mean min numpy perf_counter print
    range reduce_loss_dict reduce_tensor size step str sum synchronize time tolist tuple type update values view zero_grad
    zip
    """.split()
)
PREPARING_CALLS = frozenset(
    """
    FloatTensor LongTensor Variable adjust_learning_rate adjust_lr append arange as_tensor astype batch_to_gpu cat chunk
    clone collate contiguous copy cpu cuda cutmix_data deepcopy detach dict double enumerate eval extend fill_ float
    format from_numpy full get getattr half hasattr int isinstance items iter keys len list long lr_scheduler
    mixup_data mixup_fn move_to_device next normal_ numpy ones ones_like parse_batch partial permute pin_memory pop
    prefetch_to_gpu print rand rand_bbox randint randn randperm range requires_grad_ reshape sample send_to_device
    set_epoch shuffle split squeeze stack step str tensor time to to_device to_gpu tqdm train transpose tuple
    uniform_ unsqueeze values view zero_grad zeros zeros_like zip
    """.split()
)
# Methods of tensors that neither Apex nor autocast runs in another dtype than they are given.
UNCAST = SELECTING_METHODS | frozenset(
    "add add_ sub sub_ mul mul_ div div_ neg neg_ abs abs_ eq ne gt lt ge le clamp clamp_ expand expand_as t fill_ zero_ "
    "copy_ record_stream wait_stream masked_fill masked_fill_ logical_and logical_or logical_not any all".split()
)


def worth(node: Node, hands_on: Callable[[ast.Call], bool] = lambda _: False) -> bool:
    """Whether a statement computes more than arithmetic on a loss. `hands_on`: calls that compute nothing."""
    for a in node.own:
        if isinstance(a, ast.Call) and not plain_numbers(a) and not hands_on(a):
            name = called_name(a)
            if name not in TRIVIAL_CALLS and name not in PREPARING_CALLS:
                return True
    return False


def plain_numbers(call: ast.Call) -> bool:
    """Whether a call computes with Python's or NumPy's numbers, which nothing casts."""
    return (dotted(call.func) or "").partition(".")[0] in ("math", "random", "np", "numpy", "time", "os")


def computes(node: Node, kept: Callable[[ast.AST], bool] = lambda _: False) -> bool:
    """Whether a statement calls more than what prepares a batch. `kept`: what runs elsewhere."""
    for a in node.own:
        if isinstance(a, ast.Call) and not plain_numbers(a) and not kept(a):
            name = called_name(a).lstrip("_")
            if name not in PREPARING_CALLS and name not in TRIVIAL_CALLS and not _uncast(a):
                return True
    return False


def _uncast(call: ast.Call) -> bool:
    """Whether a call is a method of a tensor that runs in the dtype of that, in a region and out of it."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in UNCAST
