"""Forwards: which calls run one of a unit's models, and which functions hold such calls."""

from __future__ import annotations

import ast

from amp_migrate.reading.definitions import Function, dotted
from amp_migrate.reading.module import Module, Scope
from amp_migrate.reading.project import Project
from amp_migrate.reading.unit import Unit

# Methods of a model that compute nothing worth autocasting.
NOT_FORWARD = frozenset(
    """
    __repr__ append apply backward buffers cache children config copy cpu cuda double eval extend float flops freeze
    freeze_encoder from_pretrained get get_input_embeddings get_parameters get_params group_parameters half info
    init_weight init_weights initialize items keys load load_model load_pretrained load_pretrained_weights
    load_state_dict load_weights log modules named_buffers named_children named_modules named_parameters
    named_params no_sync no_weight_decay num_parameters parameters pop print print_trainable_parameters
    register_backward_hook register_buffer register_forward_hook register_full_backward_hook remove_weightnorm
    requires_grad requires_grad_ reset_parameters resize_token_embeddings save save_model save_pretrained
    save_weights set_epoch set_eval set_input_embeddings set_train setup share_memory size state_dict step
    store_inverse summary tie_weights to train type unfreeze unfreeze_encoder update update_ema values zero_grad
    """.split()
)
# Beginnings of such names.
NOT_FORWARD_PREFIXES = (
    *"configure_ freeze get_ grad_norm init_ load_ named_ nb_ num_ on_ register_ reset_ save_ set_ unfreeze update_ _".split(),
)


class Forwards:
    """The forwards of one unit's models."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self._found: dict[Function, bool] = {}

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
                and not func.attr.startswith(NOT_FORWARD_PREFIXES)
            ):
                return not isinstance(module.parents.get(node), ast.Expr) and not self.own_region(module, node)
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

    def own_region(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs project functions that have regions of their own."""
        functions = [f for f in self.project.resolved.get(call, []) if f.name != "__init__"]
        return bool(functions) and all(self.has_forward(f) for f in functions)

    def has_forward(self, function: Function) -> bool:
        """Whether a function runs a model itself or through project functions, outside of network classes."""
        if function not in self._found:
            self._found[function] = False
            if not self.in_network(function.scope):
                nodes = [n for s in function.node.body for n in ast.walk(s)]
                self._found[function] = any(self.is_forward(function.module, n) for n in nodes) or any(
                    self.has_forward(f)
                    for n in nodes
                    if isinstance(n, ast.Call)
                    for f in self.project.resolved.get(n, [])
                    if f.name != "__init__"
                )
        return self._found[function]

    def in_network(self, scope: Scope) -> bool:
        """Methods of a torch Module run inside the region of whoever calls the model."""
        owner = scope.owner_class
        if owner is None:
            return False
        cls = self.project.classes[owner.node]
        return cls.is_module and not any(s.holder is cls.family for s in self.unit.optimizer_slots)


def mentions(call: ast.Call, names: set[str]) -> bool:
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
