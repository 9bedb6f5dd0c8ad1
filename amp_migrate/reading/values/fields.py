"""What attributes of objects hold: of the program's own classes, and of what only its options say something about."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Put, Sources, own_class
from amp_migrate.reading.values.table import BESIDE, Asked, Part, Path, Question, Value, typed


class Fields:
    """The rules of the table that concern attributes; `value` asks for an expression, `put` for what is put into it."""

    def __init__(self, project: Project, value: Asked, put: Callable[[Put, Path, bool], list[Part]]) -> None:
        self.project = project
        self.sources = project.once(Sources)
        self.value = value
        self.put = put
        self._apart: dict[Module, frozenset[Module]] = {}

    def field(self, cls: ClassInfo, asker: Module, name: str, path: Path) -> Sequence[Part]:
        """What an attribute is of objects of a class or of one derived from it, and of the class itself."""
        family = {*cls.ancestry(), *cls.descendants()}
        parts = self._stored(name, path, family)
        nearest = next(([c] for c in cls.ancestry() if name in c.scope.bindings), [])
        for owner in (*nearest, *(c for c in cls.descendants() if c is not cls and name in c.scope.bindings)):
            methods = owner.variants.get(name, ())
            if any(m.is_property for m in methods):
                parts += [Question("returned", (m, path)) for m in methods]
            else:
                parts.append(Question("name", (owner.scope, name, path)))
        for owner in family:
            if name in owner.annotated:
                given = self._made_with(owner, name, path)
                parts += typed(owner.module, _annotation(owner, name), given) if not path else given
        for module, call in self.sources.unseen(family):
            parts.append(Value("unknown", module, call, BESIDE))
        return parts or [Question("loose", (asker, name, path))]

    def _stored(
        self,
        name: str,
        path: Path,
        family: set[ClassInfo],
        beside: Collection[Module] = frozenset(),
        apart: Collection[Module] = frozenset(),
    ) -> list[Part]:
        """What is given to attributes of a name, or put into them: of these classes (none: of no class that is known), or
        of what may be of any. Not what the files `beside` give to attributes of their own variables, or `apart` to any."""
        parts: list[Part] = []

        def counts(module: Module, holder: ast.expr) -> bool:
            own = own_class(self.project, module.scope_of(holder), holder)
            classes = [own] if own is not None else self.project.classes_of(module, holder)
            return any(c in family for c in classes) or (not classes and module.qualify(holder) is None)

        for module, target, given in self.sources.stored(name):
            own = module in apart or (module in beside and _is_variable(module, target.value))
            if not own and counts(module, target.value):
                if given.value is None:
                    parts.append(Value("unknown", module, target, "what it is given is not in sight"))
                else:
                    parts.append(self.value(module, given.value, (*given.path, *path)))
        for put in self.sources.puts(name, path[0]) if path else ():
            holder = put.holder
            same = isinstance(holder, ast.Attribute) and holder.attr == name and counts(put.module, holder.value)
            parts += self.put(put, path, same)
        return parts

    def _made_with(self, cls: ClassInfo, name: str, path: Path) -> list[Part]:
        """What the calls that make objects of a dataclass give a field; its default stands in the class."""
        parts: list[Part] = []
        calls = self.sources.made(cls)
        if not calls or self.sources.handed_on(cls):
            parts.append(Value("unknown", cls.module, cls.node, "its objects are made out of sight"))
        for module, call in calls:
            given = dict(cls.given(call))
            if name in given:
                parts.append(self.value(module, given[name], path))
            elif any(isinstance(a, ast.Starred) for a in call.args):
                parts.append(Value("unknown", module, call, "its arguments are not written out"))
            else:
                parts += [self.value(module, k.value, (name, *path)) for k in call.keywords if k.arg is None]
        return parts

    def _apart_from(self, module: Module) -> frozenset[Module]:
        """The files that are run by themselves, and that no process loads together with one."""
        if module not in self._apart:
            run = frozenset(m for m in self.project.modules if "__main__" in m.text)
            self._apart[module] = run - in_process(self.project, (module,))
        return self._apart[module]

    def loose(self, module: Module, name: str, path: Path) -> Sequence[Part]:
        """What an attribute is of an object of no class in sight: what the command line says, and what is assigned to
        attributes so called."""
        options = self.sources.options(module, name)
        # A file with a command line of its own sets its own options, where another has that option on its own, too.
        others = self.sources.declaring(name)
        beside = others - {module} if module in others else frozenset()
        apart = self._apart_from(module) if module in others else frozenset[Module]()
        parts = self._stored(name, path, set(), beside, apart)
        parts += [
            self.value(where, value, path) for where, value in self.sources.set_by_name(name) if where not in apart
        ]
        if not options or path:
            fields = self.sources.fields(name) if not path else ()
            parts += [Question("field", (cls, cls.module, name, path)) for cls in fields]
            why = BESIDE if parts else f".{name} of something out of sight"
            return [*parts, Value("unknown", module, module.tree, why)]
        return [*parts, *(Value("option", where, call, name) for where, call in options)]


def _is_variable(module: Module, holder: ast.expr) -> bool:
    """Whether an object is kept in a variable that nothing hands over."""
    owner = module.scope_of(holder).lookup(holder.id) if isinstance(holder, ast.Name) else None
    return owner is not None and isinstance(holder, ast.Name) and holder.id not in {*owner.params, *owner.imports}


def _annotation(cls: ClassInfo, name: str) -> ast.expr | None:
    """What a class says of the type of a field."""
    told = (s for c in cls.ancestry() for s in c.node.body if isinstance(s, ast.AnnAssign))
    return next((s.annotation for s in told if isinstance(s.target, ast.Name) and s.target.id == name), None)
