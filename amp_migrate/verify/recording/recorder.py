"""What the hooks report becomes a record: windows, backwards, clips, steps.

A *window* runs from the first training forward after one step attempt up to and including the next attempt; windows
are numbered over all optimizers. An *attempt* is one `optimizer.step()`, carried out or skipped for an overflow.
State is taken and put at window starts: at that point both programs have finished everything that belongs to the
attempt before (`scaler.update()`, Apex's copy of masters into half weights, the scheduler). Where several optimizers
step after one forward, the window stays the one that forward opened, until the next forward opens another.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, load, nn, save  # as they are now: the program's own calls are watched
from torch.optim import Optimizer

from amp_migrate.verify.recording import apex_use, forwards, state
from amp_migrate.verify.recording.census import Census
from amp_migrate.verify.recording.journal import Journal
from amp_migrate.verify.recording.noise import Noise
from amp_migrate.verify.recording.scalers import ScalerView
from amp_migrate.verify.recording.spec import ALIVE, RunSpec

BEAT = 0.5  # seconds between two signs of life where the model runs and no step is made
EVAL_FORWARDS = 20  # after the last step, or alone: enough to see in which dtype evaluation computes


class Recorder:
    """Receives events from the hooks of one run, and ends the process after `spec.steps` steps."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.folder = Path(spec.out)
        self.journal = Journal(self.folder)
        self._process = os.getpid()
        self.census = Census() if spec.census else None
        self.noise = Noise(spec.noise, spec.noise_seed) if spec.noise else None
        self.scalers: list[ScalerView] = []
        self.roots: list[nn.Module] = []
        self.attempts = 0
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._per_optimizer: dict[int, int] = {}
        self._scaled: dict[int, _Scaled] = {}  # by id of tensor and of grad_fn
        self._window_open = False
        self._comparing = False  # gradients are kept until the next window opens
        self._captures = spec.captures
        self._after_save: Path | None = None  # a capture made only for the checkpoint before it
        self._capture_next = False  # a checkpoint was saved: what follows is what a resumed run must show
        self.autocast_dtypes: set[str] = set()
        self.apex_used: set[str] = set()
        self.inside_scale_loss = False
        self.zero_grads = {"optimizer": 0, "module": 0}
        self._scaled_by_optimizer: tuple[Tensor, int, float | Tensor] | None = None
        self._outputs = forwards.Outputs()
        self._backwards = self._backwards_before = 0  # so far, and up to the end of the attempt before
        self._in_backward = 0  # how deep: activation checkpointing runs forwards and backwards within one
        self._last_attempt_at: float | None = None
        self._beaten = time.monotonic()
        self._pending_update: tuple[Optimizer, list[Tensor], dict[str, Any]] | None = None
        self._eval_forwards = 0
        self._overhead = 0.0  # seconds of the current step spent taking and putting state
        self._known_scalers = 0
        self._scalers_used: set[int] = set()  # in this window
        self._served: dict[int, set[int]] = {}  # the optimizers that stepped on what a scaler had scaled

    # --- programs' objects ---------------------------------------------------------------------------------

    def add_optimizer(self, optimizer: Optimizer) -> None:
        if all(ref() is not optimizer for ref in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))

    @property
    def optimizers(self) -> list[Optimizer | None]:
        """Every optimizer in the order of creation; None where it is gone by now."""
        return [ref() for ref in self._optimizers]

    @property
    def live_optimizers(self) -> list[Optimizer]:
        return [optimizer for optimizer in self.optimizers if optimizer is not None]

    def number_of(self, optimizer: Optimizer) -> int:
        self.add_optimizer(optimizer)
        return next(i for i, ref in enumerate(self._optimizers) if ref() is optimizer)

    def add_scaler(self, scaler: ScalerView) -> int:
        self.scalers.append(scaler)
        if self.spec.start_scale is not None and scaler.config()["dynamic"]:
            scaler.put(self.spec.start_scale, 0)
        return len(self.scalers) - 1

    # --- forward -------------------------------------------------------------------------------------------

    def concerns(self, module: nn.Module, args: tuple[Any, ...]) -> bool:
        """Whether a whole forward is one of this process's training or evaluation."""
        return os.getpid() == self._process and forwards.trains_or_evaluates(module, args)

    def before_root_forward(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._in_backward:  # what was computed before, once more
            return
        if (now := time.monotonic()) - self._beaten > BEAT:
            self._beaten = now
            (self.folder / ALIVE).touch()
        if not torch.is_grad_enabled():
            self._eval_forwards += 1
            if self._finished() and self._eval_forwards > EVAL_FORWARDS:
                self.stop("steps")
            return
        if self._finished():
            self.stop("steps")
        if not any(module is root for root in self.roots):
            self.roots.append(module)
        if not self._window_open:
            self._window_open = True
            self._eval_forwards = 0
            self._open_window(module, args)

    def after_root_forward(self, output: Any) -> None:
        self._outputs.add(output)

    def inside_module(self, inside: bool) -> None:
        if self.census is not None:
            self.census.inside_module = inside
            self.census.training = inside and torch.is_grad_enabled()

    def _open_window(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        window, spec, began = self.attempts, self.spec, time.perf_counter()
        self._scalers_used.clear()
        event = self.journal.write(
            "window",
            window=window,
            inputs=forwards.checksum(args, self._outputs),
            root=type(module).__name__,
            training=module.training,
        )
        if window == 0 and spec.restart_at is not None:
            Noise(0.5, 7).disturb(p for o in self.live_optimizers for p in state.parameters(o))
        if spec.restart_at == window:
            self._put(Path(str(spec.force_from)) / f"window_{window}.pt", event)
        elif spec.restart_at is None and spec.force_from is not None:
            captured = Path(spec.force_from) / f"window_{window}.pt"
            wanted = spec.drill is None or spec.drill.force_at == window
            if wanted and captured.exists():
                self._put(captured, event)
        elif self.noise is not None and window == 0:
            self._disturb_weights()
        self._comparing = bool(event.get("forced")) or (spec.drill is not None and window in spec.drill.keep)
        planned = self._is_planned()
        if self._capture_next:
            if self._after_save is not None:
                self._after_save.unlink(missing_ok=True)  # of a checkpoint that is no longer kept
            self._after_save = None if planned else self.folder / f"window_{window}.pt"
        if planned or self._capture_next:
            self._capture_next, self._comparing = False, True
            self._take(window, event)
        self._overhead += time.perf_counter() - began

    def _is_planned(self) -> bool:
        """With several optimizers the iteration before counts as well: what a window computes may come from it (a GAN's
        generator learns from the fakes its discriminator was shown)."""
        return self.steps in self._captures or (len(self._per_optimizer) > 1 and self.steps + 1 in self._captures)

    def _put(self, path: Path, event: dict[str, Any]) -> None:
        saved = load(path, weights_only=False)
        event["misfits"] = state.put(saved, self.optimizers, self.roots)
        enabled = self._enabled_scalers()
        for number, scaler in enabled.items():
            if len(enabled) == len(saved["scalers"]):
                scaler.put(*saved["scalers"][list(enabled).index(number)])
            else:  # Apex had a scale for each loss; the lowest is safe for all of them
                fitting = [state for state, served in zip(saved["scalers"], saved["served"], strict=True)
                           if served & self._served.get(number, set())]  # fmt: skip
                if fitting:
                    scaler.put(*min(fitting))
        event["forced"] = True
        if self.noise is not None:
            self._disturb_weights()

    def _disturb_weights(self) -> None:
        assert self.noise is not None
        for optimizer in self.live_optimizers:
            self.noise.disturb(state.parameters(optimizer))
            state.follow_masters(optimizer)

    def _enabled_scalers(self) -> dict[int, ScalerView]:
        return {number: s for number, s in enumerate(self.scalers) if s.config()["enabled"]}

    def _take(self, window: int, event: dict[str, Any]) -> None:
        taken = state.take(self.optimizers, self.roots)
        enabled = self._enabled_scalers()
        taken["scalers"] = [(float(s.scale()), int(s.tracker())) for s in enabled.values()]
        taken["served"] = [self._served.get(number, set()) for number in enabled]
        path = self.folder / f"window_{window}.pt"
        save(taken, path)
        event["captured"] = True
        affordable = max(2, self.spec.capture_budget // max(1, 2 * path.stat().st_size))
        if affordable < len(self._captures):  # fewer, but spread over the run
            self._captures = self._captures[:: -(-len(self._captures) // affordable)]

    # --- backward ------------------------------------------------------------------------------------------

    def scaled(self, result: Tensor, loss: Tensor, scaler: int, scale: float | Tensor) -> None:
        """`result` is `loss` times the scale of scaler number `scaler`."""
        inner, direct = self._origin(loss)
        if inner is None:
            entry = _Scaled(result, loss.detach(), scaler, scale, 1, self.attempts, result.grad_fn)
        else:  # scaled before: the loss is what went into the first scaling
            value = inner.loss if direct else loss.detach() / inner.scale
            entry = _Scaled(result, value, scaler, inner.scale * scale, inner.times + 1, self.attempts, result.grad_fn)
        self._scaled[id(result)] = entry
        if entry.node is not None:
            self._scaled[id(entry.node)] = entry

    def scales_next(self, loss: Tensor, scaler: int, scale: float | Tensor) -> None:
        """The next backward runs on `loss` times `scale`, out of sight: `FP16_Optimizer.backward`."""
        self._scaled_by_optimizer = (loss.detach(), scaler, scale)

    def before_backward(self, roots: list[Tensor]) -> None:
        self._in_backward += 1
        if self._in_backward > 1:
            return
        if self._finished():
            self.stop("steps")
        self._name_scalers()
        for root in roots:
            if not isinstance(root, Tensor):
                continue
            value = root.detach().float().sum()
            self._backwards += 1
            entry, direct = self._origin(root)
            if self._scaled_by_optimizer is not None:
                loss, number, scale = self._scaled_by_optimizer
                entry, direct = _Scaled(root, loss, number, scale, 1, self.attempts), True
                self._scaled_by_optimizer = None
            event = self.journal.write("backward", window=self.attempts, value=value, time=self.journal.now())
            if entry is None:
                event.update(loss=value, scaler=None, scale=1.0, scalings=0)
            else:
                loss = entry.loss.float().sum() if direct else value / entry.scale
                event.update(loss=loss, scaler=entry.scaler, scale=entry.scale, scalings=entry.times)
                event["tracker"] = self.scalers[entry.scaler].tracker()
                self._scalers_used.add(entry.scaler)
            event["autocast"] = torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
        if self.census is not None:
            self.census.counting = False

    def after_backward(self) -> None:
        self._in_backward -= 1
        if self.census is not None:
            self.census.counting = not self._in_backward

    def _origin(self, root: Tensor) -> tuple[_Scaled | None, bool]:
        """The scaling `root` went through: directly, or somewhere shallow in its graph."""
        if (entry := self._scaled.get(id(root))) is not None:
            return entry, True
        queue, seen = [root.grad_fn], 0
        while queue and seen < 64:
            node = queue.pop(0)
            seen += 1
            if node is None:
                continue
            if (entry := self._scaled.get(id(node))) is not None:
                return entry, False
            queue.extend(next_node for next_node, _ in node.next_functions)
        return None, False

    # --- gradients and steps -------------------------------------------------------------------------------

    def clipped(self, kind: str, limit: float, returned: Any) -> None:
        self.journal.write(
            "clip", window=self.attempts, clip=kind, limit=limit, norm=returned, scaled=self.inside_scale_loss
        )

    def cleared(self, optimizer: Optimizer) -> None:
        """Its gradients are zeroed: the step will know nothing of the backward passes of this window so far."""
        self.journal.write("cleared", window=self.attempts, passes=self.passes, optimizer=self.number_of(optimizer))

    def unscaled(self, scaler: int) -> None:
        self.journal.write("unscale", window=self.attempts, scaler=scaler)

    def updated(self, scaler: int, new_scale: Any) -> None:
        self.journal.write("update", window=self.attempts, scaler=scaler, new_scale=new_scale)

    def before_step(self, optimizer: Optimizer) -> None:
        if self.noise is not None:
            self.noise.disturb(p.grad for p in state.parameters(optimizer))
        event = self._attempt(optimizer, skipped=False)
        grads = state.gradients(optimizer)
        event["grad_norm"] = state.norm(grads)
        event["with_grad"] = sum(g is not None for g in grads)
        window = event["window"]
        began = time.perf_counter()
        if self._comparing:
            save([None if g is None else _dense(g) for g in grads], self.folder / f"grads_{window}.pt")
            self._pending_update = (optimizer, [p.detach().clone() for p in state.parameters(optimizer)], event)
        self._overhead += time.perf_counter() - began
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, Tensor):
            event["skipped"] = bool(found_inf.item())  # a fused step decides itself

    def after_step(self, optimizer: Optimizer) -> None:
        if self._pending_update is not None and self._pending_update[0] is optimizer:
            _, before, event = self._pending_update
            self._pending_update = None
            now = state.parameters(optimizer)
            save(
                [(p.detach().float() - b.float()).cpu() for p, b in zip(now, before, strict=True)],
                self.folder / f"update_{event['window']}.pt",
            )
        self._end_attempt()

    @property
    def backwards(self) -> int:
        """Backward passes so far."""
        return self._backwards

    @property
    def passes(self) -> int:
        """Backward passes in this window so far."""
        return self._backwards - self._backwards_before

    def skipped(self, optimizer: Optimizer, *, late: bool = False) -> None:
        """A step was not carried out; `late` when a backward without overflow has come since the overflow."""
        self._attempt(optimizer, skipped=True)["late"] = late
        self._end_attempt()

    def _attempt(self, optimizer: Optimizer, *, skipped: bool) -> dict[str, Any]:
        number = self.number_of(optimizer)
        nth = self._per_optimizer.get(number, 0)
        self._per_optimizer[number] = nth + 1
        for scaler in self._scalers_used:
            self._served.setdefault(scaler, set()).add(number)
        kept = state.parameters(optimizer)
        return self.journal.write(
            "step",
            window=self.attempts,
            optimizer=number,
            nth=nth,
            skipped=skipped,
            lr=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            dtypes=sorted({str(p.dtype).removeprefix("torch.") for p in kept}),
            name=type(optimizer).__name__,
            compared=self._comparing,
            **self._step_cost(),
        )

    def _step_cost(self) -> dict[str, Any]:
        now = self.journal.now()
        seconds = None if self._last_attempt_at is None else now - self._last_attempt_at - self._overhead
        self._last_attempt_at, self._overhead = now, 0.0
        if state.on_cuda():
            memory = torch.cuda.max_memory_allocated()
        else:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {"seconds": seconds, "memory": memory}

    def _end_attempt(self) -> None:
        self.attempts += 1
        self._window_open, self._backwards_before = False, self._backwards
        self._scaled = {key: entry for key, entry in self._scaled.items() if entry.window >= self.attempts - 2}
        began = time.perf_counter()
        self.journal.flush()
        self._overhead += time.perf_counter() - began

    # --- files ---------------------------------------------------------------------------------------------

    def saved(self, target: Any, content: dict[str, Any], kept: str | None) -> None:
        self.journal.write("save", window=self.attempts, path=str(target), kept=kept, **content)
        self._capture_next = self._capture_next or kept is not None

    def loaded(self, source: Any, content: dict[str, Any]) -> None:
        self.journal.write("load", window=self.attempts, path=str(source), **content)

    # --- the end -------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps the busiest optimizer has taken."""
        return max(self._per_optimizer.values(), default=0)

    def _finished(self) -> bool:
        return self.steps >= self.spec.steps

    def _name_scalers(self) -> None:
        for number in range(self._known_scalers, len(self.scalers)):
            self.journal.write("scaler", scaler=number, **self.scalers[number].config())
        self._known_scalers = len(self.scalers)

    def finish(self, reason: str, **details: Any) -> None:
        """Write the last lines of the record."""
        self._name_scalers()
        for number, scaler in enumerate(self.scalers):
            config = scaler.config()
            if config["enabled"]:
                self.journal.write(
                    "final_scale", scaler=number, scale=scaler.scale(), tracker=scaler.tracker(), config=config
                )
        if self.census is not None:
            self.journal.write("census", table=self.census.table())
        self.journal.write(
            "end",
            reason=reason,
            attempts=self.attempts,
            device=_device_name(),
            autocast=sorted(self.autocast_dtypes),
            apex_used=apex_use.used(self),
            zero_grads=self.zero_grads,
            at=time.time(),
            **details,
        )
        self.journal.flush()

    def stop(self, reason: str) -> None:
        """End the process here: the program is not given a chance to go on, nor to notice. Not one that it forked."""
        if os.getpid() != self._process:
            return
        self.finish(reason)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@dataclass(frozen=True)
class _Scaled:
    """A loss that went through a scaler, `times` over; keeps the tensor and its node alive so that their ids stay their own
    (before torch 2.5 a node is a new object whenever it is asked for, unless somebody holds it)."""

    result: Tensor
    loss: Tensor
    scaler: int
    scale: float | Tensor
    times: int
    window: int
    node: Any = None


def _dense(gradient: Tensor) -> Tensor:
    gradient = gradient.detach()
    return (gradient.to_dense() if gradient.is_sparse else gradient).float().cpu().clone()


def _device_name() -> str:
    return torch.cuda.get_device_name() if state.on_cuda() else "cpu"
