"""What the attributes of objects are: by what is assigned to them, whose they are, and what records are made with."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.accessors import is_getter, set_by
from amp_migrate.audit.program.module import Class, Module, Scope
from amp_migrate.audit.program.targets import Path
from amp_migrate.audit.values.origins import Origin, Sources, Stored
from amp_migrate.audit.values.records import Given
from amp_migrate.audit.values.table import Answer, Part, Question, Step

TORCH = frozenset({"torch", "torch.nn", "torch.nn.functional"})  # no objects whose attributes a program gives


class Fields:
    """The rules about attributes; `value`: what an expression may be; `exported`: what a file holds under a full name."""

    def __init__(
        self,
        sources: Sources,
        value: Callable[[Scope, ast.expr, Path], Part],
        exported: Callable[[Module, str, Path], list[Part]],
    ) -> None:
        self.sources = sources
        self.program = sources.program
        self.value = value
        self._exported = exported

    def attribute(self, scope: Scope, expr: ast.Attribute, path: Path) -> Step:
        """An attribute of what is no `self`: of the objects that are known; else of any that have one of the name."""
        name = expr.attr
        base = self.program.imported(scope, expr.value)
        if base is not None and (exported := self._exported(scope.module, f"{base}.{name}", path)):
            return Step(exported)
        if base is not None and base in TORCH:
            return Step([Origin(scope.module, expr, "unknown", path)])

        def then(answers: list[Answer | None]) -> list[Part]:
            of = answers[0] or frozenset()
            unowned = Question("unowned", (scope.module, syntax.text(expr.value), name, path))
            classes = self.classes(of)
            if classes and name == "module" and not any(self._has(cls, name) for cls, _ in classes):
                return [self.value(scope, expr.value, path)]  # of a wrapper such as DataParallel: what it was given
            if classes is not None:
                return [unowned, *(Question("field", (cls, name, path, below)) for cls, below in classes)]
            parts: list[Part] = [unowned, Question("anybody", (name, path))]
            for cls in self._made_of(of):  # of some of those that are known
                methods = (f for f in self.program._method(cls, name) if not f.node.decorator_list)
                parts += [Origin(f.module, f.node, "function", path) for f in methods]
            if given := self.sources.records.given(name):
                known = self.sources.records.of_these(given, [(o.module, o.node) for o in of])
                parts += self._filled(known, path) if known else [Question("recorded", (name, path))]
            return parts

        return Step([], None, [self.value(scope, _object(expr.value), ())], then)

    def _has(self, cls: Class, name: str) -> bool:
        """Whether objects of a class have an attribute or a method of a name by what the program writes."""
        family = self.program.family(cls)
        given = any(at.owner in family for at in self.sources.stored(name))
        return given or bool(self.program._method(cls, name)) or any(name in c.scope.bindings for c in family)

    @kept  # many questions have one answer
    def classes(self, answer: Answer) -> list[tuple[Class, bool]] | None:
        """The classes of objects that come from there, and whether each may be one below it; None: not all are known."""
        found: dict[tuple[Class, bool], None] = {}
        for origin in answer:
            if isinstance(origin.node, ast.ClassDef) and not origin.path:
                found[origin.module.class_of[origin.node], True] = None
            elif made := self.sources.classes(origin):
                found.update(dict.fromkeys((cls, False) for cls in made))
            elif origin.kind != "constant":
                return None
        return list(found) or None

    @kept
    def _made_of(self, answer: Answer) -> list[Class]:
        """The classes of those objects that are seen to be made."""
        return list(dict.fromkeys(cls for o in answer for cls in self.sources.classes(o)))

    def unowned(self, module: Module, holder: str, name: str, path: Path) -> Step:
        """An attribute of objects outside of classes that may be one with what a file writes so: written alike (`args`), as
        people do, or in another file."""
        return Step(self._assigned(name, path, (), lambda s, e: s.module is not module or syntax.text(e) == holder))

    def recorded(self, name: str, path: Path) -> Step:
        """A field of a record that is not seen to be made: what any call gives one of the name."""
        return Step(self._filled(self.sources.records.given(name), path))

    def _filled(self, given: Iterable[Given], path: Path) -> list[Part]:
        return [self.value(g.module.scope_of(g.value), g.value, path) for g in given]

    def anybody(self, name: str, path: Path) -> Step:
        """An attribute of objects of whatever class of the program."""
        return Step(self._assigned(name, path, None, lambda *_: False))

    def field(self, owner: Class, name: str, path: Path, below: bool) -> Step:
        """What an attribute is of objects of a class; `below`: or of the classes derived from it, and of objects outside of
        classes that may be one."""
        family = self.program.family(owner) if below else self.program.family_up(owner)
        told = [at for at in self.sources.stored(name) if below and self._kept_by(at) is not None]
        # What a file of the program is given is no object's: `engine.scaler = ...`.
        may_be = lambda scope, holder: below and self.sources.file_named(scope, holder) is None  # noqa: E731
        parts = self._assigned(name, path, set(family), may_be, told)
        parts += self._filled((g for g in self.sources.records.given(name) if g.cls in family), path)
        otherwise: list[Part] = []
        for function in self.program.methods(owner, name) if below else self.program._method(owner, name):
            if is_getter(function):
                otherwise.append(Question("returned", (function, path)))
            elif set_by(function) is None:
                otherwise.append(Origin(function.module, function.node, "function", path))
        if any(map(is_getter, self.program._method(owner, name))):
            return Step(otherwise)  # what is assigned to it goes to its setter
        bodies = [c for c in family if name in c.scope.bindings] if not otherwise else []
        otherwise += [Question("name", (c.scope, name, path)) for c in bodies]
        # Objects that a class body keeps may be asked before others take their place: `self.loss = self.loss[name]()`.
        parts += [Question("name", (c.scope, name, path)) for c in bodies if parts and not _only_constants(c, name)]
        if not told:
            return Step(parts or otherwise)

        def then(answers: list[Answer | None]) -> list[Part]:
            more: list[Part] = []
            for at, answer in zip(told, answers, strict=True):
                classes = self.classes(answer or frozenset())
                if classes is None or any(cls in family for cls, _ in classes):
                    more.append(self._given(at, path))
            return more if parts or more else otherwise

        return Step(parts, None, [kept for at in told if (kept := self._kept_by(at)) is not None], then)

    def own_field(self, owner: Class, name: str) -> Step:
        """What a class and its family give an attribute of `self`."""
        return Step(self._assigned(name, (), set(self.program.family(owner)), lambda *_: False))

    def _kept_by(self, at: Stored) -> Question | None:
        """What is known of the object that an assignment is to, where it is an attribute of `self`: `self.trainer.optimizer = x`."""
        if at.owner is not None or not isinstance(at.holder, ast.Attribute):
            return None
        keeper = self.program.is_self(at.scope, at.holder.value)
        return Question("own_field", (keeper, at.holder.attr)) if keeper is not None else None

    def _assigned(
        self,
        name: str,
        path: Path,
        family: Collection[Class] | None,
        unowned: Callable[[Scope, ast.expr], bool],
        but: Collection[Stored] = (),
    ) -> list[Part]:
        """What is given to attributes of a name, or put into them: of `self` in a family of classes (None: in any), and of
        other objects as `unowned` says; not by the assignments `but`."""
        parts: list[Part] = []

        def counts(scope: Scope, owner: Class | None, holder: ast.expr) -> bool:
            return unowned(scope, holder) if owner is None else family is None or owner in family

        for at in self.sources.stored(name):
            if at not in but and counts(at.scope, at.owner, at.holder):
                parts.append(self._given(at, path))
        for scope, holder, put in self.sources.put(name) if path else ():
            within, owner = put.within(path), self.program.is_self(scope, holder.value)
            if within is not None and counts(scope, owner, holder.value):
                parts.append(self.value(put.scope, put.value, within))
        return parts

    def _given(self, at: Stored, path: Path) -> Part:
        """What an assignment gives."""
        if at.value is None:
            return Origin(at.scope.module, at.target or at.holder, "unknown", path)
        return self.value(at.scope, at.value, (*at.item, *path))


def _only_constants(cls: Class, name: str) -> bool:
    """Whether a class body gives a name nothing but numbers, texts, None: what its objects have until they are given more."""
    given = [getattr(node, "value", None) for node in cls.scope.bindings[name]]
    return all(value is None or isinstance(value, ast.Constant) for value in given)


def _object(holder: ast.expr) -> ast.expr:
    """Whose attribute is asked for, where its class is asked: `type(self).kinds`, `self.__class__.kinds`."""
    if (
        isinstance(holder, ast.Call)
        and isinstance(holder.func, ast.Name)
        and holder.func.id == "type"
        and len(holder.args) == 1
    ):
        return holder.args[0]
    return holder.value if isinstance(holder, ast.Attribute) and holder.attr == "__class__" else holder
