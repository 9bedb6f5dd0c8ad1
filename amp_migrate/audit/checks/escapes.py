"""A value that Apex gave in float32, or computed with in float32, does not leave the autocast region as half unsaid.

Values are followed from the forwards of initialized models through the statements of the files that change, and into the
functions of the program that they are handed to, out of those that give them to other files, and into criteria however they
are kept: see `halves/`. The code of every network is followed as below a region, for arrays that NumPy gets, and for
products of what the program made float32; only what is half on some way is told there. So are functions with
a product in place (`addmm_`) that no way from a region is seen to. A half value that goes to code out of sight is told. In a
region, but outside of every model, so are products, and what autocast leaves in half, of what O2 gave in float32; and what O1
did not patch (einsum). What takes tensors of one dtype alone (`torch.mm` outside of a region, `out=` in one) is told where it
is given half and float32. Where the opt level is only asked for when the program runs, everything is followed twice: as at O1,
and as at O2. What a method puts into an attribute of its object, or into an entry of that, is followed into what reads it there
or of the object, what is put into a variable of a file into its functions, and what a function puts into attributes of another
object to wherever that goes. Not proved: what becomes of values in attributes that nothing of this reaches, and in closures;
the dtype that a model out of sight gives. What the program casts to float64 in sight, or NumPy makes so outright, also in a
data set, is told where it meets half in a region (AMP544); not proved: that what else NumPy computes, of integers or of what is
not seen, is no float64: the rule for what models are given (AMP524) asks that.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable

from amp_migrate.audit.checks.products import factors
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.dtypes import WRITES
from amp_migrate.audit.halves.follow import Halves
from amp_migrate.audit.halves.said import Said, quoted
from amp_migrate.audit.halves.tensors import Came, Place, Value
from amp_migrate.audit.halves.unseen import Unseen
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.mentioned import in_idle_class
from amp_migrate.audit.sites.never_mixed import never_mixed, never_on
from amp_migrate.audit.sites.tensors import Tensors
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP535",
        title="a half value reaches what Apex computed in float32",
        construct="a value of an autocast region",
        apex="O2 and O3 gave a model's outputs back in float32; O1 ran softmax, exp, sums, norms and losses in float32 wherever "
        "they stood, and made what `.cpu()` gives float32, also in the code of the model. What a program made float32 itself under "
        "O2 and O3 was computed in float32.",
        native="Autocast ends with its region: what leaves it in float16 stays so. Write `.float()` where it leaves, or compute "
        "inside of the region. An index (argmax) stays an integer. Inside, matrix products of float32 values run in float16, but "
        "in a region with `enabled=False`.",
        why="Half has 11 bits and ends at 65504: probabilities tie, sums stop growing, exponentials overflow.",
    ),
    Code(
        code="AMP544",
        title="float64 reaches a layer or a product that runs in half",
        construct="a value of an autocast region",
        apex="O1 cast every floating tensor at the functions it patched, the other levels what the model was given: float64 too.",
        native="Autocast leaves float64 alone, and products, convolutions and linear layers raise on it beside half. Write .float() "
        "where the value is given to the model.",
        why="The program trained under Apex, and raises in its first batch now.",
    ),
)
TOLD = ("AMP503", "AMP504")


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed or review.wish.dtype != "float16":
        return ()
    found = _Found(both)
    halves = Halves(both, found)
    modules = [c.after for c in review.changes.values() if "autocast" in c.after.text]
    _run(halves, modules)
    if halves.missed():
        _run(halves, modules)
    unseen = Unseen(halves)
    if both.patched or any(s.patches for s in both.removed):
        unseen.networks()
        unseen.hooks()
    elif modules:
        unseen.networks(WRITES.keys())
    if modules:
        unseen.products_in_place()
    for level in ("O2", "O1"):
        asking = [m for m in modules if both.other_level(m) == level]
        if asking:
            found.asked = level
            other = Halves(both, found, level)
            _run(other, asking)
            if other.missed():
                _run(other, asking)
            Unseen(other).networks(WRITES.keys() if level == "O2" else None)
            if level == "O1":
                Unseen(other).hooks()
    return [doubt for doubt in found.doubts if doubt not in found.perhaps or (doubt.path, doubt.line) not in found.sure]


def _run(halves: Halves, modules: Iterable[Module]) -> None:
    """Follow the code of files with regions, and whatever in other files gets half values from there."""
    first = set(modules)
    later: list[Function] = []
    for module in sorted(first, key=lambda m: m.path):
        halves.run(module, None)
        later += [f for f in module.functions if halves.run(module, f).followed]
    seen: set[Function | Module] = set()
    for giving in later:
        for module, call in halves.program.callers(giving):
            function = module.function_around(call)
            if module in first or (function or module) in seen:
                continue
            seen.add(function or module)
            if halves.run(module, function).followed and function is not None:
                later.append(function)


ONCE = ("narrow", "perhaps unpatched")  # told once a file
OF_APEX = frozenset({*ONCE, "unpatched"})  # operations that it treated otherwise, by whatever they are given
# What the rules tell of a line as well: that a value leaves the region there.
LEAVING = frozenset({*"operation numpy file returned unseen gather".split(), "unseen beside"})
COMING = frozenset(
    {*"operation numpy file unseen dtype".split(), "unseen beside"}
)  # where a value that came half is used
RAISING = frozenset({"inplace", "write", "module", "scaled", "half loss", "integer"})  # each place
CODE = {"double": "AMP544", "double loss": "AMP544", "lost": "AMP537"}  # of kinds that are no halves
# What is told where only O2 and O3 computed otherwise, which may be asked for.
ASKED = frozenset({"operation", "inside", "product", "file", "scaled", "half loss", "write", "apart"})


class _Found(Said):
    """What is reported while values are followed, each place once."""

    def __init__(self, both: Mixed) -> None:
        super().__init__(both)
        self.doubts: list[Doubt] = []
        self.places: set[tuple[object, ...]] = set()
        self.perhaps: set[Doubt] = set()  # of operations that Apex left alone, those whose arguments are not known
        self.sure: set[tuple[str, int]] = set()  # the lines of those whose are

    def __call__(
        self, kind: str, module: Module, node: ast.AST, value: Value, detail: str, at: Place | None = None
    ) -> None:
        if (self.asked == "O2" and kind not in ASKED) or (kind == "module" and self.off(module, node)):
            return
        if kind == "module" and value.narrowed and self._raised_before(module, node):
            return
        if kind == "inplace" and not value.origin and any(key[-1] is node for key in self.places):
            return  # of which it is known what it is given
        if kind == "lost" and (self.asked or not self._leaves_a_region(module, node)):
            return  # of what comes from nowhere near a model, `products.py` tells
        if kind not in RAISING and goes_nowhere(module, node):
            return
        if kind in OF_APEX and in_idle_class(self.both, module, node):
            return
        message, verdict = self.said(kind, module, node, value, detail)
        if self.asked:
            message = (
                f"where the opt level asked for is {self.asked.replace('O2', 'O2 or O3')}: {message}" if message else ""
            )
            usual = self.asked == "O2" and any(s.half_weights for s in self.both.around_of(module))
            raises = verdict == "refuse"
            verdict = "refuse" if raises and usual else "review" if raises else "look"
        if kind not in RAISING and verdict != "refuse" and never_mixed(self.both, module, node):
            return
        if isinstance(value.origin, Came) and never_on(self.both, *value.origin.place):
            return
        review = self.both.review
        where: object = node if kind in RAISING else (review.line(module, node), detail)  # once a line
        where = detail if kind in ONCE else where
        inside = module.name_around(node) if kind not in ONCE else ""
        apart = kind in RAISING or verdict == "refuse"  # else one .float() serves all that come there
        origin = value.origin if apart else ""
        once = (
            "operation" if kind == "inside" else kind
        )  # a line may run in a region for one caller and outside for another
        key = (module.path, inside, once, origin, where)
        if message and key not in self.places:
            self.places.add(key)
            line = review.line(module, node)
            own = module.path, line
            if verdict == "refuse" and module.path not in review.changes and at is not None:
                message = f"line {line} of {module.path}, {message}"  # what reaches it is what is held back
                module, line = at[0], review.line(*at)
            told = TOLD if kind in LEAVING else ("AMP508",) if kind == "narrow" else ()
            near = (1, len(module.text)) if kind == "narrow" else None  # of the file
            code, remedy = ("AMP542", own) if kind in ("inplace", "write") else (CODE.get(kind, "AMP535"), None)
            if kind == "module" and verdict != "look" and at is not None:  # without the region it is float32 as a whole
                remedy = at[0].path, review.line(*at)
            lost = self._ran_in_half(node, at) if remedy is not None and kind == "module" else ()
            given, by = None, ""
            if (kind in COMING or kind in ("below", "inside")) and verdict == "review":
                certain = (
                    kind in ("numpy", "below") and value.now == "half" and (not detail or self._of_joined(module, node))
                )
                by = "AMP522" if kind in ("operation", "inside") else "AMP504" if certain else ""
                if isinstance(value.origin, Came):
                    given = value.origin.place[0].path, review.line(*value.origin.place)
            alike = self.comes(value) if kind in COMING else message.replace(quoted(node), "", 1)
            alike += f" at {self.asked}" if self.asked else ""
            what = "a value of an autocast region"
            doubt = Doubt(module.path, line, code, what, message, verdict, told, near, remedy, alike, given, by, lost)
            self.doubts.append(doubt)
            if kind == "perhaps unpatched":
                self.perhaps.add(doubt)
            elif kind == "unpatched":
                self.sure.add((module.path, line))

    def _leaves_a_region(self, module: Module, node: ast.AST) -> bool:
        """Whether what is multiplied comes out of a region."""
        after = self.both.after
        tensors = Tensors(after.values, after.regions, after.forwards)
        given = factors(node) if isinstance(node, ast.expr) else []
        return any(tensors.half(module.scope_of(f), f) for f in given)

    def _of_joined(self, module: Module, node: ast.AST) -> bool:
        """Whether NumPy is given what torch joins, which is a tensor for sure: `np.cov(torch.cat(found))`."""
        given = node.args if isinstance(node, ast.Call) else []
        calls = (a for a in given if isinstance(a, ast.Call))
        return any(
            self.both.review.after.dotted(module.scope_of(c), c.func) in ("torch.cat", "torch.stack") for c in calls
        )

    def _ran_in_half(self, node: ast.AST, at: Place | None) -> tuple[tuple[int, int], ...]:
        """Where the call stood that gives half to float32 weights now, if Apex had been set up before it: in a region it does
        not raise."""
        calls = (
            [n for n in syntax.own_line(at[1]) if isinstance(n, ast.Call)] if at and isinstance(at[1], ast.stmt) else []
        )
        if at is None or not calls:
            return ()
        call = node if node in calls else calls[0]
        was = self.both.was(at[0], call) if self._never_under_apex(at[0], call) is False else None
        return ((was[1].lineno, was[1].col_offset),) if was is not None and isinstance(was[1], ast.Call) else ()

    def _raised_before(self, module: Module, node: ast.AST) -> bool:
        """Whether no run that comes to a place had come by a set-up: what the program makes half met float32 weights there."""
        return self._never_under_apex(module, node) is True

    def _never_under_apex(self, module: Module, node: ast.AST) -> bool | None:
        """Whether no run that comes to a place had come by a set-up; None where no way to it is seen."""
        both = self.both
        ways = [old for chain in both.after.chains.to(module, node) if (old := both.chain_before(chain)) is not None]
        came = (both.before.possible(old, both.under_apex(old, both.initialized).half) for old in ways)
        return not any(came) if ways else None

    def off(self, module: Module, node: ast.AST) -> bool:
        """Whether a call stands where mixed precision is off: the other side of an `if` around it makes it in a region."""
        if not isinstance(node, ast.Call):
            return False
        for inner, around in itertools.pairwise((node, *module.ancestors(node))):
            if isinstance(around, ast.If) and inner is not around.test:
                calls = (
                    c
                    for s in (around.orelse if inner in around.body else around.body)
                    for c in syntax.every(s, ast.Call)
                )
                same = (c for c in calls if syntax.text(c.func) == syntax.text(node.func))
                regions = (self.both.after.regions.nearest(module, call) for call in same)
                if any(region is not None and not region.off for region in regions):
                    return True
        return False


def goes_nowhere(module: Module, node: ast.AST) -> bool:
    """Whether a node only makes what is put into elements of a tensor that its function makes, and that nothing reads."""
    stmt = module.statement(node)
    if not isinstance(stmt, ast.Assign) or module.function_around(stmt) is None:
        return False
    return all(isinstance(t, ast.Subscript) and _unread(module, module.scope_of(stmt), t.value) for t in stmt.targets)


def _unread(module: Module, scope: Scope, tensor: ast.expr) -> bool:
    if not isinstance(tensor, ast.Name) or scope.binder(tensor.id) is not scope:
        return False
    made = [b.value if isinstance(b, ast.Assign) else None for b in scope.bindings[tensor.id]]
    if not all(isinstance(v, ast.Call) and syntax.text(v.func).startswith("torch.") for v in made):
        return False  # it may be another name for what is read elsewhere
    reads = (n for n in module.loads.get(tensor.id, ()) if isinstance(n, ast.Name))
    own = ((n, module.parents.get(n)) for n in reads if module.scope_of(n).binder(tensor.id) is scope)
    return all(isinstance(at, ast.Subscript) and at.value is n and isinstance(at.ctx, ast.Store) for n, at in own)
