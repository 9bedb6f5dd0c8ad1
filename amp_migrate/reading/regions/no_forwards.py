"""Calls of a model that run nothing of it, by what they are called and given."""

from __future__ import annotations

import ast
import builtins

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name, is_none
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

# Methods of a model that compute nothing worth autocasting.
NOT_FORWARD = frozenset(
    """
    __repr__ append apply backward buffers cache children config copy cpu cuda double eval extend float flops freeze
    freeze_encoder from_pretrained get get_input_embeddings get_parameters get_params group_parameters half info
    init_weight init_weights initialize items keys load load_model load_pretrained load_pretrained_weights
    load_state_dict load_weights log modules name named_buffers named_children named_modules named_parameters
    named_params no_sync no_weight_decay num_parameters parameters pop print print_trainable_parameters
    register_backward_hook register_buffer register_forward_hook register_full_backward_hook remove_weightnorm
    requires_grad requires_grad_ reset_parameters resize_token_embeddings save save_model save_pretrained
    save_weights set_epoch set_eval set_input_embeddings set_train setup share_memory size state_dict step
    store_inverse summary tie_weights to train type unfreeze unfreeze_encoder update update_ema values zero_grad
    """.split()
)
# Beginnings of such names.
NOT_FORWARD_PREFIXES = (
    *"collate configure_ freeze get_ grad_norm init_ load_ named_ nb_ num_ on_ parse_ prepare_ preprocess register_ "
    "reset_ save_ serialize set_ unfreeze update_ _".split(),
)
NOT_FORWARD_SUFFIXES = ("_parameters", "_params", "_modules", "_buffers", "_state_dict")
# Methods that give a tensor another dtype, and such as prepare data or train.
CASTING_METHODS = frozenset("float half bfloat16 double requires_grad_ backward clamp_min mean max min".split())

RECORDS = frozenset("namedtuple NamedTuple make_dataclass".split())  # what makes classes that only hold values

# Builtins that only look at what they are given: `len(self.blocks)`.
LOOKING = frozenset(
    "bool enumerate getattr hasattr id int isinstance iter len next print range repr str type zip".split()
)
# What lists and dictionaries have.
CONTAINER_METHODS = frozenset("append extend items keys values get copy update pop index".split())

MOVING = frozenset("cpu cuda detach item numpy to tolist".split())


def given_none(call: ast.Call) -> bool:
    """Whether None is all that a call is given: there is nothing to compute from, `self.loss(None).keys()`."""
    given = [*call.args, *(k.value for k in call.keywords)]
    return bool(given) and all(map(is_none, given))


def tells(function: Function, call: ast.Call) -> bool:
    """Whether Python's own function only looks, or a method is named as one that computes nothing, and is given switches alone:
    `self.accuracy.get_metric(reset)`."""
    if isinstance(call.func, ast.Name):
        return call.func.id in LOOKING
    if not called_name(call).startswith(NOT_FORWARD_PREFIXES):
        return False
    return all(_is_switch(function, v) for v in (*call.args, *(k.value for k in call.keywords)))


def _is_switch(function: Function, value: ast.expr) -> bool:
    if not isinstance(value, ast.Name):
        return isinstance(value, (ast.Constant, ast.Compare))
    told = next((p.annotation for p in function.parameters if p.arg == value.id), None)
    default = function.defaults.get(value.id)
    is_bool = isinstance(default, ast.Constant) and isinstance(default.value, bool)
    return is_bool or (isinstance(told, ast.Name) and told.id == "bool")


def looks(function: Function) -> bool:
    """Whether all that a function runs are Python's own functions, methods of containers, and such as take a tensor elsewhere,
    and it multiplies nothing."""
    for node in function.inside:
        if isinstance(node, ast.Call):
            python = isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
            if not python and not (
                isinstance(node.func, ast.Attribute) and node.func.attr in CONTAINER_METHODS | MOVING
            ):
                return False
        elif isinstance(node, ast.BinOp):
            return False
    return True


def packs(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call only puts what it is given together: a named tuple, a data class, a data set and what loads it."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    if (module.qualify(call.func) or "").startswith("torch.utils.data."):
        return True
    cls = project.find_class(module, call.func)
    if cls is not None:
        plain = not any(c.methods.keys() & {"__init__", "__new__", "__post_init__"} for c in cls.ancestry())
        decorated = any("dataclass" in ast.unparse(d) for d in cls.node.decorator_list)
        return plain and (decorated or any(n.rpartition(".")[2] == "NamedTuple" for n in cls.base_names))
    return project.slot(module, call.func) in project.once(_records)


def _records(project: Project) -> set[Slot]:
    """The variables that hold a class of named tuples or of data: `Losses = namedtuple("Losses", "actor critic")`."""

    def gives(_: Module, stmt: ast.Assign) -> bool:
        return isinstance(stmt.value, ast.Call) and called_name(stmt.value) in RECORDS

    return {slot for word in RECORDS for slot in project.holding(word, gives)}


def host_only(project: Project, function: Function) -> bool:
    """Whether a function computes by NumPy, scikit-learn and the like alone."""
    libraries, module = set[str](), function.module
    for node in function.inside:
        if not isinstance(node, ast.Call):
            continue
        name = module.qualify(node.func) or ""
        root = name.partition(".")[0]
        if isinstance(node.func, ast.Name) and not root and hasattr(builtins, node.func.id):
            continue
        if not root or root in ("torch", "apex") or project.may_be_own(root):
            return False
        libraries.add(root)
    return bool(libraries)


def holds(cls: ClassInfo, name: str) -> bool:
    """Whether an attribute is a variable of the instances: no class that they may have a method from is out of sight."""
    family = list(cls.ancestry())
    if any(name in c.methods for c in family):
        return False
    if all(len(c.bases) == len([b for b in c.base_names if b != "object"]) for c in family):
        return True
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Store)
        for c in family
        for n in walk(c.node)
    )
