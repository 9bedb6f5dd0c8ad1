"""`.grad` as it is read in code: of a parameter, whose gradient carries the scale, or of an input, which never is unscaled."""

from __future__ import annotations

import ast

from amp_migrate.reading.gradients.directions import Directions
from amp_migrate.reading.program.definitions import dotted, is_none
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.values.reaching import reaching

PARAMETERS = frozenset("p param params parameter weight bias w v tensor pp data".split())
SETTINGS = frozenset("self cls args cfg config conf opt opts ctx hparams flags".split())  # `args.grad` is no tensor's


class GradAttributes:
    """Tells which reads of `.grad` see the scale."""

    def __init__(self) -> None:
        self._directions: dict[Scope, Directions] = {}

    def reads(self, module: Module, node: ast.Attribute) -> bool:
        """Whether an expression `X.grad` reads what must be unscaled first."""
        return self.of_parameter(module, node) and not self.directions(module, module.scope_of(node)).free

    def of_parameter(self, module: Module, node: ast.Attribute) -> bool:
        """Whether `X.grad` may be a parameter's, as everything is that was not made to require gradients by the program."""
        parent = module.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return False  # torch.autograd.grad(...)
        if (dotted(node) or "").startswith(("torch.", "autograd.")) or self._is_reset(module, node):
            return False
        return parameter_like(node.value) or not input_like(module, node.value)

    def directions(self, module: Module, scope: Scope) -> Directions:
        """What the code of a scope makes of the gradients that it reads."""
        if scope not in self._directions:
            self._directions[scope] = Directions(module, scope)
        return self._directions[scope]

    def _is_reset(self, module: Module, node: ast.Attribute) -> bool:
        """`p.grad = None`, `if p.grad is not None: p.grad.zero_()`: scaled or not makes no difference."""
        parent = module.parents.get(node)
        if isinstance(parent, ast.Attribute) and parent.attr in ("zero_", "detach_", "data"):
            grand = module.parents.get(parent)
            if parent.attr == "data":
                return isinstance(grand, ast.Attribute) and grand.attr in ("zero_", "fill_")
            after = module.parents.get(grand) if grand is not None else None
            return parent.attr == "zero_" or isinstance(after, ast.Expr) or getattr(after, "attr", "") == "zero_"
        return isinstance(parent, ast.Compare) and any(map(is_none, parent.comparators))


def parameter_like(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return text.rpartition(".")[2] in PARAMETERS or "param" in text or "weight" in text


def input_like(module: Module, node: ast.AST) -> bool:
    """Whether the program makes something require or keep gradients, as it does with inputs and activations."""
    text = ast.unparse(node)
    if text in SETTINGS:
        return True
    if not any(word in module.text for word in ("requires_grad", "retain_grad", "Variable(")):
        return False
    if isinstance(node, ast.Name) and _is_same_input(module, node):
        return True
    for other in module.of(ast.Assign, ast.Call):
        if isinstance(other, ast.Assign):
            targets = [ast.unparse(t) for t in other.targets]
            value = ast.unparse(other.value)
            if text in targets and _makes_input(other):
                return True
            if f"{text}.requires_grad" in targets and value != "False":
                return True
        elif isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute):
            if other.func.attr in ("requires_grad_", "retain_grad") and ast.unparse(other.func.value) == text:
                return "False" not in map(ast.unparse, other.args)
    return False


def _makes_input(stmt: ast.AST | None) -> bool:
    """Whether a statement makes what requires a gradient: `x = torch.tensor(images, requires_grad=True)`."""
    value = ast.unparse(stmt.value) if isinstance(stmt, ast.Assign) else ""
    return "requires_grad" in value or "Variable(" in value


def _is_same_input(module: Module, name: ast.Name) -> bool:
    """Whether a name is another one for what was made so before: `first = x`, where `x` goes on to be something else."""
    scope = module.scope_of(name)
    given = [module.parents.get(b) for b in reaching(scope, name)]
    return bool(given) and all(
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Name)
        and (made := reaching(module.scope_of(stmt), stmt.value))
        and all(_makes_input(module.parents.get(b)) for b in made)
        for stmt in given
    )
