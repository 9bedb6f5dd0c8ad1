"""Autocast regions: which statements Apex ran in mixed precision, as tightly as a person would write it.

Model forwards and the computation of the loss from them; not data loading, not backward, not the step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.definitions import Function, dotted
from amp_migrate.reading.lookup import Slot
from amp_migrate.reading.module import FUNCTION_NODES, LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.project import Project
from amp_migrate.reading.unit import Unit
from amp_migrate.reading.view import Block, Folds, Node, view

# Methods of a model that compute nothing worth autocasting.
NOT_FORWARD = frozenset(
    "train eval to cuda cpu half float double parameters named_parameters buffers named_buffers "
    "modules named_modules children "
    "named_children state_dict load_state_dict zero_grad apply requires_grad_ requires_grad "
    "share_memory register_buffer "
    "register_forward_hook register_full_backward_hook register_backward_hook save_pretrained save "
    "load from_pretrained "
    "resize_token_embeddings tie_weights num_parameters get_input_embeddings set_input_embeddings "
    "config print_trainable_parameters "
    "flops no_sync append extend items keys values get pop update copy setup backward step summary "
    "log info print freeze unfreeze "
    "freeze_encoder unfreeze_encoder init_weights init_weight initialize reset_parameters "
    "no_weight_decay set_train set_eval "
    "get_parameters get_params named_params group_parameters load_pretrained load_pretrained_weights load_weights "
    "save_weights save_model load_model remove_weightnorm store_inverse cache update_ema set_epoch "
    "__repr__ size type".split()
)
LOSS_NAMES = re.compile(r"(loss|criteri|crit\b|crit_|cross_entropy|\bbce|_bce|nll|kl_div|objective)", re.IGNORECASE)
NOT_LOSSES = re.compile(
    r"(?:^|_)(reduced?|meter|log|print|record|append|update|add|track|save|plot|show|report|running|avg|average|get|check|valid|validate|is|nan|inf|finite|plain|scale|scaled)(?:_|$)"
)
TRIVIAL_CALLS = frozenset(
    "mean sum item detach float cpu numpy max min len isinstance int bool str range zip enumerate "
    "list tuple dict getattr hasattr "
    "size dim view clone data append print get all_reduce barrier reduce_tensor reduce_loss_dict "
    "values items keys type backward "
    "step zero_grad update log info debug add_scalar format join time synchronize perf_counter".split()
)
PREPARING_CALLS = frozenset(
    "to cuda cpu next iter tuple list dict zip enumerate range len int float str Variable from_numpy "
    "tensor as_tensor LongTensor "
    "FloatTensor zeros ones randn rand randint arange zeros_like ones_like full contiguous "
    "pin_memory numpy getattr items keys "
    "values get pop append extend zero_grad step lr_scheduler train eval set_epoch time print format "
    "isinstance hasattr squeeze "
    "unsqueeze permute transpose view reshape clone detach requires_grad_ copy deepcopy split chunk "
    "parse_batch batch_to_gpu to_gpu "
    "prefetch_to_gpu move_to_device to_device send_to_device collate sample shuffle normal_ uniform_ "
    "fill_ adjust_learning_rate "
    "randperm long half double cat stack mixup_data mixup_fn cutmix_data rand_bbox adjust_lr tqdm range partial".split()
)
GAP = 3  # cold statements between two hot ones that a region swallows rather than being split


@dataclass
class Region:
    """A run of statements of one block to put under autocast; `join`: add it to this `with torch.no_grad()` instead."""

    first: ast.stmt
    last: ast.stmt
    join: ast.With | None = None


@dataclass
class Regions:
    """The regions of one scope."""

    scope: Scope
    found: list[Region] = field(default_factory=list)
    values: set[str] = field(default_factory=set)  # names computed in them
    islands: list[ast.stmt] = field(default_factory=list)  # losses that autocast refuses: kept outside
    trained: bool = False  # holds the forward of a scaled loss


class RegionReader:
    """Finds the regions of one unit, scope by scope."""

    def __init__(self, unit: Unit, folds: dict[Module, Folds], taken: frozenset[Scope] = frozenset()) -> None:
        self.unit = unit
        self.taken = taken  # scopes that another unit has decided
        self.project: Project = unit.project
        self.folds = folds
        self._views: dict[Scope, Block] = {}
        self._read: dict[Scope, Regions] = {}
        self._penalties: set[Node] = set()
        self._forwards: dict[Function, bool] = {}
        self._loss_functions = self._functions_that_make_losses()

    # -- which scopes --------------------------------------------------------------------------------------------

    def scopes(self) -> Iterable[Scope]:
        """Scopes that run a forward of the unit's models, or compute or scale one of its losses."""
        names = {s.name for s in self.unit.model_slots}
        wanted: dict[Scope, None] = {}
        for loss in self.unit.losses:
            wanted[loss.module.scope_of(loss.call)] = None
            target = self.project.function_of(loss.module, loss.call)
            for module, call in self.project.calls.get(target, []) if target is not None else ():
                wanted[module.scope_of(call)] = None
        for function in self._loss_functions:
            wanted[function.scope] = None
        for module in self.project.modules:
            if not any(name in module.text for name in names):
                continue
            for call, scope in module.calls:
                if scope not in wanted and _mentions(call, names) and self.is_forward(module, call):
                    wanted[scope] = None
        return [s for s in wanted if not s.is_class and s not in self.taken and not self._in_network(s)]

    def _in_network(self, scope: Scope) -> bool:
        """Methods of a torch Module run inside the region of whoever calls the model."""
        owner = scope.owner_class
        if owner is None:
            return False
        cls = self.project.classes[owner.node]
        return cls.is_module and not any(any(s.holder is cls.family for s in self.unit.optimizer_slots) for _ in (0,))

    def view(self, scope: Scope) -> Block:
        if scope not in self._views:
            self._views[scope] = view(scope.module, scope.body, self.folds.get(scope.module, Folds()))
        return self._views[scope]

    # -- forwards ------------------------------------------------------------------------------------------------

    def is_forward(self, module: Module, node: ast.AST) -> bool:
        """Whether a call runs one of the unit's models."""
        if not isinstance(node, ast.Call):
            return False
        func = node.func
        if isinstance(func, (ast.Name, ast.Subscript)) or (
            isinstance(func, ast.Attribute) and func.attr in ("module",)
        ):
            if self._is_model(module, func):
                return True
        if isinstance(func, ast.Attribute):
            if self._is_model(module, func):
                return True
            if (
                func.attr not in NOT_FORWARD
                and not func.attr[:1].isupper()  # a class of a module that has the model's name
                and self._is_model(module, func.value)
                and not func.attr.startswith(
                    (
                        "load_",
                        "save_",
                        "set_",
                        "register_",
                        "get_",
                        "named_",
                        "freeze",
                        "unfreeze",
                        "init_",
                        "reset_",
                        "configure_",
                        "nb_",
                        "num_",
                        "update_",
                        "grad_norm",
                        "on_",
                        "_",
                    )
                )
            ):
                return not isinstance(module.parents.get(node), ast.Expr) and not self._own_region(module, node)
        name = (dotted(func) or "").rpartition(".")[2]
        if name in ("data_parallel", "checkpoint") and node.args:
            return self._is_model(module, node.args[0])
        return False

    def _is_model(self, module: Module, node: ast.AST) -> bool:
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        slot = self.project.slot(module, node)
        if slot is None or slot not in self.unit.model_slots:
            return False
        return slot not in self.unit.optimizer_slots

    def _own_region(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs project functions that have regions of their own."""
        functions = [f for f in self.project.resolved.get(call, []) if f.name != "__init__"]
        return bool(functions) and all(self.has_forward(f) for f in functions)

    def has_forward(self, function: Function) -> bool:
        """Whether a function runs a model itself or through project functions, outside of network classes."""
        if function not in self._forwards:
            self._forwards[function] = False
            if not self._in_network(function.scope):
                nodes = [n for s in function.node.body for n in ast.walk(s)]
                self._forwards[function] = any(self.is_forward(function.module, n) for n in nodes) or any(
                    self.has_forward(f)
                    for n in nodes
                    if isinstance(n, ast.Call)
                    for f in self.project.resolved.get(n, [])
                    if f.name != "__init__"
                )
        return self._forwards[function]

    def _functions_that_make_losses(self) -> dict[Function, set[str]]:
        """Functions whose result is (part of) a scaled loss, with the names they return it under."""
        found: dict[Function, set[str]] = {}
        queue = [(x.module, x.module.scope_of(x.call), _names(x.loss)) for x in self.unit.losses]
        while queue:
            _, scope, wanted = queue.pop()
            for node in (n for s in scope.body for n in ast.walk(s)):
                if not isinstance(node, (ast.Assign, ast.AugAssign)) or not _stored(node) & wanted:
                    continue
                for call in ast.walk(node.value):
                    if not isinstance(call, ast.Call):
                        continue
                    for function in self.project.resolved.get(call, []):
                        if function in found or function.name == "__init__":
                            continue
                        found[function] = self._returned(
                            function, _positions(node, wanted) if call is node.value else None
                        )
                        queue.append((function.module, function.scope, found[function]))
        return found

    def _returned(self, function: Function, positions: set[int] | None) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(function.node):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            if isinstance(node.value, ast.Tuple) and positions is not None:
                for index, element in enumerate(node.value.elts):
                    names |= _names(element) if index in positions else set()
            else:
                names |= _names(node.value)
        return names

    # -- one scope -----------------------------------------------------------------------------------------------

    def read(self, scope: Scope) -> Regions:
        """The regions of a scope, in source order."""
        if scope not in self._read:
            self._read[scope] = self._regions(scope)
        return self._read[scope]

    def _regions(self, scope: Scope) -> Regions:
        module = scope.module
        result = Regions(scope)
        block = self.view(scope)
        losses = [x for x in self.unit.losses if x.module is module and module.scope_of(x.call) is scope]
        function = self.project.functions.get(scope.node)
        makes_loss = function is not None and function in self._loss_functions
        passes_loss = self._passed_losses(module, scope)
        nodes = list(block.walk())
        forwards = {n for n in nodes if any(self.is_forward(module, a) for a in n.own())}
        if not forwards and not losses and not makes_loss and not passes_loss:
            return result
        if self.unit.only_inference and any(_calls_backward(a) for n in nodes for a in n.own()):
            return result  # trained without Apex
        roots: set[str] = set()
        for loss in losses:
            roots |= self._loss_names(module, loss.loss)
        for value in passes_loss:
            roots |= _names(value)
        if makes_loss:
            assert function is not None
            roots |= self._loss_functions[function]
        hot = self._hot(module, nodes, forwards, roots, bool(losses) or bool(passes_loss))
        hot |= forwards
        early = self._before_initialize(scope, nodes)
        plain = self.folds[module].plain if module in self.folds else set()
        early |= {n for n in nodes if plain and any(a in plain for a in (n.stmt, *module.ancestors(n.stmt)))}
        hot -= early
        forwards -= early
        self._penalties = {
            n for n in nodes if any(isinstance(a, ast.Call) and _second_order(module, a) for a in n.own())
        }
        hot -= self._penalties
        result.islands = [n.stmt for n in hot if n not in forwards and self.refused(module, n)]
        hot -= {n for n in hot if n.stmt in result.islands}
        for n in hot:
            result.values |= {name for name in self._defines(n) if "." not in name and name not in roots}
        result.trained = bool(losses) or makes_loss or bool(passes_loss)
        self._group(module, block, hot, forwards, result)
        return result

    def refused(self, module: Module, node: Node) -> bool:
        """Whether a statement computes binary_cross_entropy, which raises under autocast."""
        for a in node.own():
            if not isinstance(a, ast.Call):
                continue
            name = module.qualify(a.func) or ""
            if name.rpartition(".")[2] == "binary_cross_entropy":
                return True
            slot = self.project.slot(module, a.func) if isinstance(a.func, (ast.Name, ast.Attribute)) else None
            if slot is not None and slot in self._bce_slots:
                return True
        return False

    @cached_property
    def _bce_slots(self) -> set[Slot]:
        """Variables that hold a `torch.nn.BCELoss`."""
        found: set[Slot] = set()
        for module in self.project.modules:
            if "BCELoss" not in module.text:
                continue
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    for call in ast.walk(node.value):
                        if isinstance(call, ast.Call) and (dotted(call.func) or "").rpartition(".")[2] == "BCELoss":
                            slot = self.project.slot(module, node.targets[0])
                            found.update([slot] if slot is not None else [])
        return self.project.reaches(found)

    def _loss_names(self, module: Module, loss: ast.expr) -> set[str]:
        """Names whose value a loss expression takes: not the functions it calls, and none where it holds the forward
        itself, which is put in a region where the loss is scaled."""
        if any(self.is_forward(module, n) for n in ast.walk(loss)):
            return set()
        called = {id(n.func) for n in ast.walk(loss) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        names: set[str] = set()
        stack: list[ast.AST] = [loss]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in called:
                names |= _names(node)
            elif id(node) not in called:
                stack.extend(ast.iter_child_nodes(node))
        return names

    def _before_initialize(self, scope: Scope, nodes: list[Node]) -> set[Node]:
        """Statements above `initialize` in the scope that calls it: they ran without Apex."""
        lines = [
            i.call.lineno
            for i in self.unit.inits
            if i.site.scope is scope and not any(isinstance(a, LOOP_NODES) for a in scope.module.ancestors(i.call))
        ]
        if not lines:
            return set()
        return {n for n in nodes if (n.stmt.end_lineno or n.stmt.lineno) < min(lines)}

    def _passed_losses(self, module: Module, scope: Scope) -> list[ast.expr]:
        """Arguments of this scope's calls that become a scaled loss in another function."""
        found: list[ast.expr] = []
        for loss in self.unit.losses:
            target = self.project.function_of(loss.module, loss.call)
            names = _names(loss.loss)
            if target is None or not names & set(target.scope.params):
                continue
            for caller, call in self.project.calls.get(target, []):
                if caller is module and module.scope_of(call) is scope:
                    found += [v for p, v in self.project.arguments(target, call) if p in names]
        return found

    def _hot(
        self, module: Module, nodes: list[Node], forwards: set[Node], roots: set[str], training: bool
    ) -> set[Node]:
        """Statements between a forward and the loss: they carry its value on and the loss needs them."""
        simple = [n for n in nodes if not isinstance(n.stmt, (*FUNCTION_NODES, ast.ClassDef))]
        needed = set(roots)
        for _ in range(8):
            size = len(needed)
            for n in simple:
                if self._defines(n) & needed:
                    needed |= self._reads_names(n)
            if len(needed) == size:
                break
        slice_nodes = [n for n in simple if self._defines(n) & needed]
        covered = {n for n in simple if any(isinstance(a, ast.Call) and self._own_region(module, a) for a in n.own())}
        seeds = [n for n in simple if n in forwards or n in covered]
        hot: set[Node] = set()
        if training and not any(n in forwards or n in covered for n in slice_nodes):
            # Nothing in the slice is known to be a model: the first real computation is taken for one.
            for n in slice_nodes:
                if not n.blocks and self._computes(module, n):
                    seeds.append(n)
                    hot.add(n)
        tainted: set[str] = set()
        for n in simple:  # in source order: what later statements compute does not reach back
            if n in seeds or (self._reads_names(n) & tainted and self._carries(n)):
                tainted |= self._defines(n)
        for n in slice_nodes:
            if n.blocks or n in covered or not (n in forwards or self._reads_names(n) & tainted):
                continue
            if n not in forwards and not self._worth(module, n):
                continue
            hot.add(n)
        # Evaluation: the loss of outputs, though nothing is scaled.
        for n in simple:
            if not n.blocks and self._reads_names(n) & tainted and self._calls_loss(module, n):
                hot.add(n)
        if roots and hot:
            hot |= self._arithmetic(module, slice_nodes, hot, tainted)
        return hot

    def _arithmetic(self, module: Module, slice_nodes: list[Node], hot: set[Node], tainted: set[str]) -> set[Node]:
        """Cheap arithmetic on the loss right after it is computed stays with it (`loss = loss / steps`)."""
        more: set[Node] = set()
        for n in slice_nodes:
            if n.blocks or n in hot or not self._reads_names(n) & tainted:
                continue
            holder = n.parent.holder
            # `if n_gpu > 1: loss = loss.mean()` goes with the loss; a branch that also does other things does not.
            within = [x for x in holder.walk() if not x.blocks] if holder is not None else []
            whole = holder is not None and all(x in slice_nodes for x in within)
            for link in [holder, n] if whole and holder is not None else [n]:
                before = link.parent.nodes[max(link.index - 1, 0) : link.index]
                if any(x in hot or x in more for b in before for x in b.walk()):
                    more.add(n)
        return more

    def _worth(self, module: Module, node: Node) -> bool:
        """Whether a statement computes more than arithmetic on a loss."""
        for a in node.own():
            if isinstance(a, ast.Call):
                name = (dotted(a.func) or ast.unparse(a.func)).rpartition(".")[2]
                if name not in TRIVIAL_CALLS and name not in PREPARING_CALLS:
                    return True
        return False

    def _carries(self, node: Node) -> bool:
        """Whether a statement hands on tensors of the forward: not plain numbers and not bookkeeping."""
        if isinstance(node.stmt, (ast.Assign, ast.AnnAssign)) and isinstance(node.stmt.value, ast.Call):
            name = (dotted(node.stmt.value.func) or ast.unparse(node.stmt.value.func)).rpartition(".")[2]
            return name not in ("item", "tolist", "len", "numpy", "time", "int", "float")
        return True

    def _computes(self, module: Module, node: Node) -> bool:
        for a in node.own():
            if isinstance(a, ast.Call):
                name = (dotted(a.func) or ast.unparse(a.func)).rpartition(".")[2]
                if name not in PREPARING_CALLS and name not in TRIVIAL_CALLS:
                    return True
        return False

    def _calls_loss(self, module: Module, node: Node) -> bool:
        if not isinstance(node.stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)):
            return False
        for a in node.own():
            if isinstance(a, ast.Call):
                name = (dotted(a.func) or ast.unparse(a.func)).rpartition(".")[2]
                if LOSS_NAMES.search(name) and name not in TRIVIAL_CALLS and "scale_loss" not in name:
                    if not NOT_LOSSES.search(name):
                        return not self._own_region(module, a)
        return False

    def _defines(self, node: Node) -> set[str]:
        out: set[str] = set()
        inner = {n for a in node.own() if isinstance(a, ast.comprehension) for n in ast.walk(a.target)}
        for a in node.own():
            if a in inner:
                continue
            if isinstance(a, ast.Name) and isinstance(a.ctx, ast.Store):
                out.add(a.id)
            elif isinstance(a, (ast.Attribute, ast.Subscript)) and isinstance(a.ctx, ast.Store):
                name = dotted(a) if isinstance(a, ast.Attribute) else dotted(a.value)
                if name:
                    out.add(name)
            elif (
                isinstance(a, ast.Call)
                and isinstance(a.func, ast.Attribute)
                and a.func.attr in ("append", "extend", "update", "add")
            ):
                name = dotted(a.func.value)
                if name:
                    out.add(name)
        return out

    def _reads_names(self, node: Node) -> set[str]:
        out: set[str] = set()
        for a in node.own():
            if isinstance(a, (ast.Name, ast.Attribute)) and isinstance(a.ctx, ast.Load):
                name = dotted(a)
                while name:
                    out.add(name)
                    name = name.rpartition(".")[0]
        if isinstance(node.stmt, ast.AugAssign):
            out |= self._defines(node)
        return out

    # -- grouping ------------------------------------------------------------------------------------------------

    def _barrier(self, module: Module, node: Node) -> bool:
        """Statements that must not stand in a region: backward, step, scaling, the loop over batches."""
        scaled = {loss.with_stmt for loss in self.unit.losses if loss.module is module}
        if node in self._penalties:
            return True
        for inner in node.walk():
            if any(a in scaled for a in module.ancestors(inner.stmt)):
                return True
            for a in inner.own():
                if (
                    isinstance(a, ast.Call)
                    and isinstance(a.func, ast.Attribute)
                    and a.func.attr in ("backward", "step", "unscale_")
                ):
                    return True
                if isinstance(a, ast.Call):
                    name = (dotted(a.func) or "").rpartition(".")[2]
                    if name in ("barrier", "save", "save_checkpoint", "backward", "synchronize"):
                        return True
                if isinstance(a, ast.Call) and any(
                    loss.module is f.module and self.project.function_of(loss.module, loss.call) is f
                    for f in self.project.resolved.get(a, [])
                    for loss in self.unit.losses
                ):
                    return True
            if isinstance(inner.stmt, (ast.Continue, ast.Break)) and inner.parent is node.parent:
                return True
        return False

    def _group(self, module: Module, block: Block, hot: set[Node], forwards: set[Node], result: Regions) -> None:
        run: list[Node] = []

        def close() -> None:
            if run:
                result.found.append(Region(run[0].stmt, run[-1].stmt))
                run.clear()

        cold: list[Node] = []
        for node in block.nodes:
            if isinstance(node.stmt, (*FUNCTION_NODES, ast.ClassDef)):
                close()
                cold = []
                continue
            if not any(n in hot for n in node.walk()):
                cold.append(node)
                if self._barrier(module, node) or len(cold) > GAP or (any(n.blocks for n in cold) and len(cold) > 1):
                    close()
                continue
            if self._whole(module, node, hot, forwards):
                if isinstance(node.stmt, WITH_NODES) and _no_grad(node.stmt) and node not in hot:
                    close()
                    result.found.append(Region(node.stmt, node.stmt, join=node.stmt))  # type: ignore[arg-type]
                else:
                    run.append(node)
                cold = []
                continue
            close()
            cold = []
            if node in hot:  # a forward in the header of a statement that also holds a backward
                result.found.append(Region(node.stmt, node.stmt))
                continue
            for inner in node.blocks:
                self._group(module, inner, hot, forwards, result)
        close()

    def _whole(self, module: Module, node: Node, hot: set[Node], forwards: set[Node]) -> bool:
        """Whether a statement goes into a region as it is; else its blocks are looked into."""
        if not node.blocks:
            return True
        if self._barrier(module, node):
            return False
        inside = [n for n in node.walk() if n is not node and not n.blocks]
        cold = [n for n in inside if n not in hot]
        if isinstance(node.stmt, LOOP_NODES):
            has_forward = any(n in forwards for n in node.walk())
            return not has_forward
        if isinstance(node.stmt, WITH_NODES):
            if _no_grad(node.stmt):
                if any(isinstance(n.stmt, LOOP_NODES) for n in node.walk()):
                    return False
                return len(cold) <= 2 and not any(self._computes(module, n) for n in cold) and inside[:1] != cold[:1]
            return len(cold) <= len(inside) // 2
        if isinstance(node.stmt, ast.If):
            alone = not any(x in hot for n in node.parent.nodes if n is not node for x in n.walk())
            return not cold if alone else len(cold) <= 2 or len(cold) * 2 <= len(inside)
        return False


def _mentions(call: ast.Call, names: set[str]) -> bool:
    """Whether a call's function, or its first argument, names one of the models' variables."""
    for node in (call.func, *call.args[:1]):
        current: ast.AST = node
        while isinstance(current, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(current, ast.Attribute) and current.attr in names:
                return True
            current = current.func if isinstance(current, ast.Call) else current.value
        if isinstance(current, ast.Name) and current.id in names:
            return True
    return False


def _second_order(module: Module, node: ast.Call) -> bool:
    """`torch.autograd.grad(..., create_graph=True)`: a backward, so outside of autocast."""
    return module.qualify(node.func) == "torch.autograd.grad"


def _calls_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _no_grad(stmt: ast.stmt) -> bool:
    assert isinstance(stmt, WITH_NODES)
    return any(
        isinstance(i.context_expr, ast.Call)
        and (dotted(i.context_expr.func) or "").rpartition(".")[2] in ("no_grad", "inference_mode", "set_grad_enabled")
        for i in stmt.items
    )


def _names(node: ast.AST) -> set[str]:
    out: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load):
            name = dotted(n)
            if name:
                out.add(name)
    return out


def _positions(node: ast.Assign | ast.AugAssign, wanted: set[str]) -> set[int] | None:
    """Which elements of an unpacked result are wanted; None where all may be."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, (ast.Tuple, ast.List)):
        return None
    return {i for i, e in enumerate(target.elts) if _stores(e) & wanted}


def _stores(node: ast.AST) -> set[str]:
    return {dotted(n) or "" for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _stored(node: ast.Assign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name for t in targets for name in _stores(t)}
