"""Does a program itself know how Apex's FusedAdam keeps its state? Its step count lies in the parameter group; torch's Adam and
AdamW keep one for each parameter, and raise KeyError for a state without one.

Says nothing of a state that is only read or overwritten by `exp_avg` and `exp_avg_sq`: both keep these the same way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project

FUSED_ADAM = "apex.optimizers.FusedAdam"
MOMENTS = frozenset(("exp_avg", "exp_avg_sq"))
STEP = "step"


@dataclass(frozen=True)
class Known:
    """A place that works with FusedAdam's layout, and what it does there that torch's Adam takes otherwise."""

    module: Module
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module.display}:{self.line} {self.what}"


def knows_layout(project: Project, module: Module) -> Known | None:
    """The first place in one process with a file that works with FusedAdam's layout."""
    places = project.once(_Places).found
    together = in_process(project, [module]) if places else frozenset()
    return next((place for place in places if place.module in together), None)


class _Places:
    """All such places of a program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.found = [
            place
            for module in project.modules
            if "exp_avg_sq" in module.text or "param_groups" in module.text
            for place in (*_built(project, module), *_counted(project, module))
        ]


def _built(project: Project, module: Module) -> Iterator[Known]:
    """Entries of a state that are put together without a step count: `{"exp_avg": m, "exp_avg_sq": v}`."""
    for node in module.of(ast.Dict) if "exp_avg_sq" in module.text else ():
        keys = {key.value if isinstance(key, ast.Constant) else None for key in node.keys}
        names = all(isinstance(value, ast.Constant) for value in node.values)
        if not keys >= MOMENTS or None in keys or names or _own_optimizer(project, module, node):
            continue
        if not _says_step(module, node):
            what = "puts the state of a parameter together without a step count, which raises KeyError: 'step' with torch's"
            yield Known(module, module.statement(node).lineno, what)


def _counted(project: Project, module: Module) -> Iterator[Known]:
    """The step count of a parameter group is asked for: `group["step"]`, of another object's `param_groups`."""
    for node in module.named.get(STEP, ()):
        parent = module.parents.get(node)
        if isinstance(parent, ast.Subscript) and parent.slice is node and not isinstance(parent.ctx, ast.Del):
            group: ast.expr = parent.value
        elif isinstance(parent, ast.Compare) and parent.left is node and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
            group = parent.comparators[0]
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "get":
            group = parent.func.value
        else:
            continue
        groups = _groups(module, group)
        its_own = groups is not None and module.is_self(groups.value)
        if groups is not None and not (its_own and not _own_optimizer(project, module, node, of_apex=True)):
            what = "works with the step count in a parameter group, where torch's keeps none"
            yield Known(module, module.statement(node).lineno, what)


def _groups(module: Module, group: ast.expr) -> ast.Attribute | None:
    """The `param_groups` that an expression may be one of."""
    for value in _bound(module, group) if isinstance(group, ast.Name) else [group]:
        found = value.value if isinstance(value, ast.Subscript) else value
        if isinstance(found, ast.Attribute) and found.attr == "param_groups":
            return found
    return None


def _bound(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What assignments and loops give a name, anywhere in its scope."""
    owner = module.scope_of(name).lookup(name.id)
    for binding in owner.bindings.get(name.id, ()) if owner is not None else ():
        giver = module.parents.get(binding)
        giver = module.parents.get(giver) if isinstance(giver, ast.Tuple) else giver
        if isinstance(giver, ast.Assign):
            yield giver.value
        elif isinstance(giver, (ast.For, ast.comprehension)):
            yield giver.iter
            yield from giver.iter.args if isinstance(giver.iter, ast.Call) else ()


def _own_optimizer(project: Project, module: Module, node: ast.AST, *, of_apex: bool = False) -> bool:
    """Whether a place belongs to an optimizer of the program's own, whose state is its own affair; `of_apex`: to one that
    derives from Apex's."""
    for around in module.ancestors(node):
        cls = project.classes.get(around)
        if cls is None:
            continue
        bases = [name for above in cls.ancestry() for name in above.base_names]
        if of_apex:
            return any(name == FUSED_ADAM for name in bases)
        return any(name.startswith("torch.optim") for name in bases)
    return False


def _says_step(module: Module, node: ast.AST) -> bool:
    """Whether the function around a place speaks of a step count at all: it may be added apart."""
    function = module.scope_of(node).node
    return any(function in module.ancestors(n) for n in module.named.get(STEP, ()))
