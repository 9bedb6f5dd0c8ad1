"""What makes a network with parameters of its own, and is one made where there may have been one before?"""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.values.values import Values

# What makes new parameters, whatever it is given.
COPIES = frozenset({"copy.deepcopy", "torch.load", "torch.jit.load"})
LOADS = ("from_pretrained", "load_from_checkpoint")
SAME = frozenset(
    "to cuda cpu half float train eval double requires_grad_".split()
)  # methods that give the network itself


class NewNetworks:
    """Answers for one state of a program."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program

    def renewed(self, module: Module) -> bool:
        """Whether a file gives something a network that may have had one before: in a loop, in two places, in a function that
        is given one, in a method that may run again."""
        for target, value, item in assignments(module):
            if item or not isinstance(value, ast.Call) or not isinstance(target, (ast.Name, ast.Attribute)):
                continue
            if self._again(module, target) and self.new(module, value):
                return True
        return False

    def _again(self, module: Module, target: ast.Name | ast.Attribute) -> bool:
        function = module.function_around(target)
        if isinstance(target, ast.Attribute):
            own = [t for m, t, _, _ in self.values.fields(target.attr) if m is module]
            return len(own) > 1 or function is None or function.name != "__init__"
        binder = module.scope_of(target).binder(target.id)
        if binder is not None and len(binder.bindings[target.id]) > 1:
            return True
        return any(isinstance(a, (ast.For, ast.While, ast.AsyncFor)) for a in module.ancestors(target))

    def new(self, module: Module, value: ast.expr) -> bool:
        """Whether a value is a network that was just made: `Net().cuda()`, `copy.deepcopy(model)`, `torch.load(path)`."""
        value = syntax.chained(value, SAME)
        if not isinstance(value, ast.Call):
            return False
        scope = module.scope_of(value)
        name = self.program.dotted(scope, value.func) or ""
        if name in COPIES:
            return True
        found = self.program.definitions(scope, value.func, guess=False)
        if found:
            return all(self._makes(d) for d in found)
        if isinstance(value.func, ast.Attribute) and value.func.attr in LOADS:
            return True
        layer = name.startswith("torch.nn.") and name.count(".") == 2 and name.rpartition(".")[2][:1].isupper()
        return layer and "Loss" not in name and "Parallel" not in name

    def _makes(self, definition: Function | Class) -> bool:
        if isinstance(definition, Class):
            return self.program.is_network(definition)
        returned = [n.value for n in syntax.own(definition.node, ast.Return) if n.value is not None]
        if not returned or syntax.own(definition.node, ast.Yield):
            return False
        return all(self._of_network(definition, value) for value in returned)

    def _of_network(self, function: Function, value: ast.expr) -> bool:
        origins = self.values.origins(function.scope, value)
        return bool(origins) and all(
            isinstance(o.node, ast.Call)
            and not o.path
            and o.module is function.module
            and o.module.function_around(o.node) is function
            and any(
                isinstance(d, Class) and self.program.is_network(d)
                for d in self.program.definitions(o.module.scope_of(o.node), o.node.func, guess=False)
            )
            for o in origins
        )
