"""Averaging gradients over processes: automatically during backward, or on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Module

from .. import deprecated_warning
from .buckets import Buckets
from .flat import flatten, unflatten

__all__ = ["DistributedDataParallel", "Reducer", "apply_flat_dist_call", "flat_dist_call", "flatten", "unflatten"]


def apply_flat_dist_call(bucket: Sequence[Tensor], call: Callable[..., Any], extra_args: Any = None) -> None:
    """Call a collective on tensors of one dtype as one flat tensor and copy the result back; all_reduce averages."""
    flat = flatten(bucket)
    call(flat, *(extra_args or ()))
    if call is dist.all_reduce:
        flat /= dist.get_world_size()
    for target, value in zip(bucket, unflatten(flat, bucket), strict=True):
        target.copy_(value)


def split_by_type(tensors: Iterable[Tensor]) -> dict[str, list[Tensor]]:
    """The tensors by their type, in order of appearance."""
    buckets: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        buckets.setdefault(str(tensor.type()), []).append(tensor)
    return buckets


def flat_dist_call(tensors: Iterable[Tensor], call: Callable[..., Any], extra_args: Any = None) -> None:
    """`apply_flat_dist_call` for tensors of any dtypes."""
    for bucket in split_by_type(tensors).values():
        apply_flat_dist_call(bucket, call, extra_args)


def extract_tensors(maybe_tensor: Any, tensor_list: list[Tensor]) -> None:
    """Append every tensor in a nest of iterables."""
    if isinstance(maybe_tensor, Tensor):
        tensor_list.append(maybe_tensor)
    elif isinstance(maybe_tensor, Iterable) and not isinstance(maybe_tensor, str):
        for item in maybe_tensor:
            extract_tensors(item, tensor_list)


class Reducer:
    """Averages gradients over processes when `reduce` is called, and not before.

    Given a module, its parameters are made those of rank 0 first; given gradients, that is up to the program.
    """

    def __init__(self, module_or_grads_list: Any) -> None:
        self.module: nn.Module | None = None
        self.grads: list[Tensor] = []
        if isinstance(module_or_grads_list, Module):
            self.module = module_or_grads_list
            flat_dist_call([p.data for p in self.module.parameters()], dist.broadcast, (0,))
        else:
            extract_tensors(module_or_grads_list, self.grads)

    def reduce(self) -> None:
        """Average now."""
        grads = self.grads
        if self.module is not None:
            grads = [p.grad.data for p in self.module.parameters() if p.grad is not None]
        flat_dist_call(grads, dist.all_reduce)


class DistributedDataParallel(Module):
    """Averages gradients over processes during backward, in buckets that are sent while backward goes on.

    The first backward (and the first after the set of trainable parameters changed) sends everything at its end and
    learns the order in which gradients arrive; rank 0's order becomes everybody's. Parameters are made those of
    rank 0 at construction.

    message_size: smallest number of elements in a bucket.
    delay_allreduce: send everything at the end of backward, always; needed where parameters are used irregularly.
    allreduce_trigger_params: parameters whose gradient closes a bucket, instead of `message_size`.
    retain_allreduce_buffers: gradients become views of the flat buffers in `allreduce_buffers`.
    allreduce_always_fp32: float16 gradients are summed in float32.
    gradient_average, gradient_predivide_factor f: gradients are multiplied by 1/f before the sum and, if averaging,
        by f/world size after it.
    num_allreduce_streams, allreduce_communicators: several process groups taking turns.
    prof, gradient_average_split_factor: accepted, without effect.

    Raises ValueError for `shared_param`, and for `delay_allreduce` together with triggers or several streams.
    """

    def __init__(
        self,
        module: Module,
        message_size: int = 10000000,
        delay_allreduce: bool = False,
        shared_param: Any = None,
        allreduce_trigger_params: Iterable[nn.Parameter] | None = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: Any = None,
        prof: bool = False,
    ) -> None:
        super().__init__()
        deprecated_warning("apex.parallel.DistributedDataParallel is deprecated.")
        if shared_param is not None:
            raise ValueError(
                "shared_param is no longer supported as an option. Shared parameters need no option; use "
                "delay_allreduce=True to delay communication to the end of the backward pass."
            )
        if num_allreduce_streams > 1 and delay_allreduce:
            raise ValueError("num_allreduce_streams > 1 may only be used if delay_allreduce=False.")
        if allreduce_trigger_params is not None and delay_allreduce:
            raise ValueError("Setting allreduce_trigger_params is only valid if delay_allreduce=False.")
        if allreduce_communicators:
            assert num_allreduce_streams > 1
            assert len(allreduce_communicators[0]) == len(allreduce_communicators[1]) == num_allreduce_streams

        self.world_size = float(dist.get_world_size())
        self.module = module
        self.message_size = message_size
        self.delay_allreduce = delay_allreduce
        self.retain_allreduce_buffers = retain_allreduce_buffers
        self.allreduce_always_fp32 = allreduce_always_fp32
        self.gradient_average = gradient_average
        self.gradient_predivide_factor = gradient_predivide_factor
        self.num_allreduce_streams = num_allreduce_streams
        self.allreduce_communicators = allreduce_communicators
        self.prof = prof
        self.custom_allreduce_triggers = allreduce_trigger_params is not None
        self.allreduce_buffers: list[Tensor | None] = []

        self._disable_allreduce = False
        self._callback_queued = False
        self._active: list[nn.Parameter] = []
        self._triggers = {id(p) for p in allreduce_trigger_params or ()}
        self._buckets: Buckets | None = None
        self._groups: list[Any] = []
        self._create_hooks()
        flat_dist_call([p.data for p in module.parameters()], dist.broadcast, (0,))

    def enable_allreduce(self) -> None:
        """Average gradients again."""
        self._disable_allreduce = False

    def disable_allreduce(self) -> None:
        """Leave gradients as each process computed them, for gradient accumulation."""
        self._disable_allreduce = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        result = self.module(*inputs, **kwargs)
        if not self._disable_allreduce:
            self._callback_queued = False
            if not self.delay_allreduce:
                self._prepare_buckets()
        return result

    def _prepare_buckets(self) -> None:
        params = [p for p in self.module.parameters() if p.requires_grad]
        same = len(params) == len(self._active) and all(a is b for a, b in zip(params, self._active, strict=True))
        if self._buckets is None or not same:
            self._active = params
            self._buckets = Buckets(
                params, self.message_size, self._triggers if self.custom_allreduce_triggers else None
            )
        elif self._buckets.complete:
            self._buckets.start()
            self.allreduce_buffers = [None] * len(self._buckets.members)
            self._make_groups()

    def _make_groups(self) -> None:
        if self._groups or self.num_allreduce_streams == 1:
            return
        if self.allreduce_communicators:
            self._groups = list(self.allreduce_communicators[0])
        else:
            self._groups = [dist.new_group() for _ in range(self.num_allreduce_streams)]

    def _create_hooks(self) -> None:
        # Hooks that run once the gradient is in `.grad`. A parameter used several times calls its hook once.
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._gradient_ready)  # type: ignore[no-untyped-call]
            for p in self.module.parameters()
            if p.requires_grad
        ]

    def _gradient_ready(self, param: Tensor) -> None:
        if self._disable_allreduce:
            return
        buckets = None if self.delay_allreduce else self._buckets
        if not self._callback_queued:
            at_end = self._reduce_everything if buckets is None or not buckets.complete else self._finish
            torch.autograd.Variable._execution_engine.queue_callback(at_end)
            self._callback_queued = True
        if buckets is None:
            return
        if not buckets.complete:
            buckets.observe(param)
            return
        for index, gradients in buckets.ready(param):
            self._send(index, gradients)

    def _reduce_everything(self) -> None:
        """End of a backward that sent nothing yet."""
        self._callback_queued = False
        if self._buckets is not None and not self._buckets.complete:
            self._buckets.agree()
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        by_type = list(split_by_type(gradients).values())
        self.allreduce_buffers = [None] * len(by_type)
        for index, bucket in enumerate(by_type):
            self._wait(index, bucket, *self._all_reduce(bucket, group=None))

    def _send(self, index: int, gradients: list[Tensor]) -> None:
        assert self._buckets is not None
        group = self._groups[index % self.num_allreduce_streams] if self._groups else None
        self._buckets.in_flight.append((index, gradients, *self._all_reduce(gradients, group)))

    def _finish(self) -> None:
        """End of a backward that sent its buckets on the way. Raises RuntimeError if a bucket never filled."""
        self._callback_queued = False
        assert self._buckets is not None
        in_flight, expected = self._buckets.in_flight, len(self._buckets.members)
        for index, gradients, flat, summed, work in in_flight:
            self._wait(index, gradients, flat, summed, work)
        sent = len(in_flight)
        self._buckets.start()
        if sent != expected:
            raise RuntimeError(
                f"In epilogue, next_bucket ({sent}) != num_buckets ({expected}): some parameters received no gradient. "
                "Use delay_allreduce=True for models that do not use all parameters in every iteration."
            )

    def _all_reduce(self, gradients: list[Tensor], group: Any) -> tuple[Tensor, Tensor, Any]:
        flat = flatten([g.detach() for g in gradients])
        summed = flat.float() if self.allreduce_always_fp32 else flat
        if self.gradient_predivide_factor != 1.0:
            summed.mul_(1.0 / self.gradient_predivide_factor)
        return flat, summed, dist.all_reduce(summed, group=group, async_op=True)

    def _wait(self, index: int, gradients: list[Tensor], flat: Tensor, summed: Tensor, work: Any) -> None:
        work.wait()
        if self.gradient_average:
            summed.mul_(self.gradient_predivide_factor / self.world_size)
        if summed is not flat:
            flat.copy_(summed)
        views = unflatten(flat, gradients)
        if self.retain_allreduce_buffers:
            self.allreduce_buffers[index] = flat
            for gradient, view in zip(gradients, views, strict=True):
                gradient.data = view
        else:
            torch._foreach_copy_([g.detach() for g in gradients], views)
