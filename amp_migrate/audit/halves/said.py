"""How it is said that a value is float16 where Apex had it in float32: what gave it, what computes in it, what to write."""

from __future__ import annotations

import ast

from amp_migrate.audit.doubts import Verdict
from amp_migrate.audit.dtypes import WITHOUT_NETWORKS
from amp_migrate.audit.halves.tensors import CAST, PERHAPS_INDEXED, Value
from amp_migrate.audit.mixed import Mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.lookalikes import PARTS, RUNNING
from amp_migrate.audit.sites.networks import KEEPERS
from amp_migrate.audit.values.names import last_name


class Said:
    """The messages of one migration, by the kinds of what is reported while values are followed."""

    def __init__(self, both: Mixed) -> None:
        self.both = both
        self.asked = ""  # the level that the program is followed as at, where that is not the usual one

    def floats(self, module: Module) -> bool:
        """Whether models had half weights at the level that the program is followed as at."""
        return self.both.floats(module) and self.asked != "O1"

    def said(self, kind: str, module: Module, node: ast.AST, value: Value, detail: str) -> tuple[str, Verdict]:
        text, had = quoted(node), "may have had" if value.was == "both" else "had"
        if kind == "below":
            return (
                f"{text}: the model computes this in float16 under autocast, and NumPy gets a float16 array; O1's .cpu() "
                "made it float32. Write .float() first"
            ), "review"
        if kind == "perhaps below":
            return (
                f"{text}: a network, or a part of one, that is out of sight gives this; where that is float16 under autocast, NumPy "
                "gets a float16 array; O1's .cpu() made it float32. Write .float() first"
            ), "look"
        if kind == "island":
            if not self.floats(module):
                return "", "look"
            return (
                f"{text}: the program made its arguments float32, and O2 and O3 computed {detail} in that; in the autocast "
                "region it is float16 again. Put it in torch.autocast(..., enabled=False) where that matters"
            ), "review"
        if kind == "double":
            return (
                f"{text}: what this is given is float64, which Apex cast and autocast leaves alone: {detail} raises on float64 "
                "beside half. Write .float() where it is given"
            ), "review"
        if kind == "double loss":
            return (
                f"{text}: one of these is float64: O1 computed {detail} in float32, nothing casts float64 now, and the loss is "
                "float64. Write .float() where it is given"
            ), "look"
        if kind == "like":
            which = "O2" if self.floats(module) else "Apex"
            given = f"what {value.origin} gives" if value.origin else "its argument"
            return (
                f"{text}: takes the dtype of {given}, which is float16 in the autocast region, and what is put into it is rounded "
                f"to that; {which} {had} it in float32. Write dtype=torch.float32"
            ), "look"
        if kind == "unpatched":
            were, then = ("may have been", ", then") if value.was == "both" else ("were", "")
            return (
                f"{text}: O1 did not patch {detail}, and its arguments {were} float32: it was computed in that{then}; in the "
                "autocast region it is float16 now. Put it in torch.autocast(..., enabled=False) where that matters"
            ), "review"
        if kind == "perhaps unpatched":
            return (
                f"{text}: O1 did not patch {detail}. Where its arguments are float32 (parameters, raw inputs, what a normalization "
                "gives) it was computed in that, and in the autocast region it is float16 now. See all of this file, and put it "
                "in torch.autocast(..., enabled=False) where that matters"
            ), "look"
        if kind == "narrow":
            return (
                f"{text}: O1 computed {detail} in float32, and in the autocast region it is computed in float16, as what it is "
                "given. Write .float() first where that matters"
            ), "look"
        if kind == "lost":
            return (
                f"{text} ran in half precision under Apex, as O1 reached all products; what it is given leaves the autocast region "
                "in float32, and it runs in that now. Let the region reach to it to have it as it was"
            ), "look"
        if kind == "single":
            return (
                f"{text}: one side is a single float32 number, which made this float32 under O1; in the autocast region it "
                "stays float16, as the other side is. Write .float() on that where it matters"
            ), "look"
        if kind == "product":
            where = (
                "where the opt level asked for is O2 or O3: " if self.both.patches(module) and not self.asked else ""
            )
            return (
                f"{where}{text}: what {value.origin} gives was float32, and {detail} outside of the model was computed in that; in "
                "the autocast region it is float16 now. Put it in torch.autocast(..., enabled=False), on .float(), where that "
                "matters"
            ), "review"
        comes = self.comes(value, self._inside(module, node))
        if kind == "inside":
            which = "O2" if self.floats(module) else "Apex"
            gave = "may have given" if value.was == "both" else "gave"
            return (
                f"{text}: {self.comes(value, inside=True)}, and {detail} is computed in it; {which} {gave} it in float32. Write "
                ".float() first"
            ), "review"
        if kind == "operation":
            return (
                f"{text}: {comes}, and {detail} is computed in it; Apex {had} it in float32. Write .float() first",
                "review",
            )
        if kind == "numpy":
            first = "Write .float() first"
            if detail:  # which may be of arrays already
                first = "Write .float() where it is still a tensor, .astype(numpy.float32) where it is an array"
            return f"{text}: {comes}, and NumPy gets a float16 array; Apex {had} it in float32. {first}", "review"
        if kind == "file":
            return (
                f"{text}: {comes}, and the file holds float16; Apex {had} it in float32. Write .float() first",
                "review",
            )
        if kind == "dtype":
            which = "Apex" if value.widened else "O2"
            return (
                f"{text}: {comes}, and {detail} takes its dtype, where {which} {had} float32: float16 has no odd number above "
                "2048, and ends at 65504. Write torch.float32",
                "review",
            )
        if kind == "returned":
            was = "O2 gave it in float32" if self.floats(module) else "O1 ran its sums and losses in float32"
            return f"{comes}, and goes to {detail}, which is out of sight: {was}. Return .float()", "review"
        if kind == "extension":
            return (
                f"{text}: what {value.origin} gives is float16 in the region, and {detail} is out of sight: O2 gave it in "
                "float32. Code of torch's runs under autocast, but for binary_cross_entropy, which raises there whatever it is "
                "given; an extension that reads float32 wants .float()"
            ), "look"
        if kind in ("unseen", "unseen beside"):
            host = value.widened or self._takes_arrays(module, node)  # what is on the CPU came there as float32
            was = f"Apex {had} it in float32" if host else "O1 ran its softmax, sums and losses in float32"
            was = "O2 gave it in float32" if self.floats(module) else was
            called = node.func if isinstance(node, ast.Call) and len(node.args) == 1 else None
            if called is not None and not value.host and self._may_have_weights(module, called):
                was = f"a network with float32 weights raises on it there, which Apex cast; {was}. Write .float() first"
            else:
                was += ". Write .float() where it computes"
            if kind == "unseen beside":
                was = f"it raises where it takes tensors of one dtype alone, for another that it is given is float32; {was}"
            return f"{text}: {comes}, and {detail} is out of sight: {was}", "review"
        if kind == "gather":
            return f"{text}: {comes}, and the other side of {detail} is float32. Write .float() first", "review"
        is_half = "is" if value.now == "half" else "may be"
        given = f"what {value.origin} gives" if value.origin else "an argument"
        given = "an argument, which the program makes half itself," if value.origin == CAST else given
        if kind == "inplace":
            return (
                f"{text}: {given} {is_half} float16 under autocast and what is written into is float32: {detail} takes no part "
                "in autocast, and raises on both together. Give it .float() arguments"
            ), "refuse" if value.now == "half" else "review"
        if kind == "apart":
            return (
                f"{text}: {given} {is_half} float16 under autocast, and something else is float32: {detail} takes tensors of one "
                "dtype alone, and raises. Give it .float() arguments"
            ), "refuse" if value.now == "half" else "review"
        if kind == "write":
            are = "are" if value.now == "half" else "may be"
            return (
                f"{text}: what is written and what it is written into {are} float16 and float32 under autocast, where both were "
                f"of one dtype: {detail} takes no part in autocast, and raises then. Cast one with .to(other.dtype)"
            ), "refuse" if value.now == "half" and detail != PERHAPS_INDEXED else "review"
        if kind == "module":
            if value.origin == CAST and not self.weights_were_half(module, node):
                return "", "look"
            sure: Verdict = "refuse" if value.now == "half" or value.origin == CAST else "review"
            return f"{text}: {comes}, and the weights of {detail} are float32 outside of a region: it raises", sure
        if kind == "scaled":
            return (
                f"{detail} was reduced outside of the autocast region, where {comes}: its gradient is the loss scale, and "
                "65536 is inf in half, so the scale never gets above 32768; reduce .float()"
            ), "review"  # it trains, with less of a scale
        if kind == "half loss":
            return (
                f"{detail} is float16 where it is scaled, as {value.origin or 'the model'} gives it in the region: its gradient is "
                "the loss scale, and 65536 is inf in half, so the scale never gets above 32768; O2 gave it in float32. Write "
                ".float() before it is reduced"
            ), "review"
        if kind == "integer" and self.added(module, node):
            return (
                f"{text}: {detail} holds integers (indices), which Apex left alone: as float32 they index nothing",
                "refuse",
            )
        return "", "look"

    def _inside(self, module: Module, node: ast.AST) -> bool:
        """Whether a region stands around a place."""
        region = self.both.after.regions.nearest(module, node)
        return region is not None and not region.off

    def comes(self, value: Value, inside: bool = False) -> str:
        """How a value came to be half: where that is one cause of several places, one line tells of them."""
        where = "in" if inside else "outside of"
        if value.origin == CAST:
            if value.now == "partly" and not value.narrowed:
                return "its argument may be float16, as the program makes it itself or a model gives it in the autocast region"
            return "its argument is made half by the program itself"
        what = f"what {value.origin} gives" if value.origin else "its argument"
        if value.now == "partly":
            return f"{what} may be float16 {where} the autocast region"
        if value.now == "maybe":
            return (
                f"{what} is float16 {where} the autocast region where the model ends in a linear or convolution layer"
            )
        if inside and not value.host:
            return f"{what} is float16 in the autocast region"
        return f"{what} {'goes to the CPU' if value.host else 'leaves the autocast region'} as float16"

    def weights_were_half(self, module: Module, node: ast.AST) -> bool:
        """Whether the model had half weights under Apex (O2, O3, `.half()`), and has float32 ones now."""
        return isinstance(node, ast.Call) and node in self.both.running and self.floats(module)

    def added(self, module: Module, node: ast.AST) -> bool:
        """Whether the migration wrote this call."""
        change, stmt = self.both.review.changes.get(module.path), module.statement(node)
        if change is None or stmt in change.same:
            return False
        old = change.rewritten.get(stmt)
        return old is None or syntax.text(node) not in syntax.text(old)

    def _takes_arrays(self, module: Module, node: ast.AST) -> bool:
        """Whether what is called comes of a library that takes arrays, as NumPy does: `KMeans(2).fit(found)`."""
        called: ast.AST | None = node.func if isinstance(node, ast.Call) else None
        while isinstance(called, ast.expr):
            if (name := self.both.review.after.dotted(module.scope_of(called), called)) is not None:
                return name.partition(".")[0] in WITHOUT_NETWORKS
            called = getattr(called, "func", getattr(called, "value", None))
        return False

    def _may_have_weights(self, module: Module, called: ast.expr) -> bool:
        """Whether what is called is held in a variable whose name is not that of a loss, a metric and the like; a method of
        another object is one of a network only by its own name, or by that of the object."""
        after, name = self.both.review.after, last_name(called) or ""
        if after.dotted(module.scope_of(called), called) is not None or KEEPERS.search(name):
            return False
        if not isinstance(called, ast.Attribute) or after.is_self(module.scope_of(called), called.value) is not None:
            return True
        return name in RUNNING or bool(PARTS.search(name)) or last_name(called.value) in self.both.network_names


def quoted(node: ast.AST) -> str:
    """Code as a message quotes it."""
    text = syntax.text(node)
    return text if len(text) < 60 else text[:57] + "..."
