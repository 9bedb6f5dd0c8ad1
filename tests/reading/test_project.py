"""Who calls whom and where values flow, over one file or several."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site, find_sites


def project(**files: str) -> Project:
    """A program of modules by name; `pkg__mod` is pkg.mod."""
    return Project(
        Module(Path(f"{name.replace('__', '/')}.py"), textwrap.dedent(text).lstrip("\n"), name.replace("__", "."))
        for name, text in files.items()
    )


def sites(p: Project) -> list[Site]:
    return [site for module in p.modules for site in find_sites(p, module)]


# -- sites -----------------------------------------------------------------------------------------------------------


def test_sites_are_found_in_source_order_without_the_imports() -> None:
    p = project(train="from apex import amp\nif amp:\n    amp.scale_loss(x, y)\namp.initialize(z)\n")
    assert [(s.name, s.at) for s in sites(p)] == [
        ("apex.amp", (2, 4)),
        ("apex.amp.scale_loss", (3, 5)),
        ("apex.amp.initialize", (4, 1)),
    ]


def test_private_homes_of_names_are_the_documented_ones() -> None:
    p = project(
        train="from apex.amp.frontend import initialize\nfrom apex.amp.handle import scale_loss\n"
        "initialize(a)\nscale_loss(b)\n"
    )
    assert [s.name for s in sites(p)] == ["apex.amp.initialize", "apex.amp.scale_loss"]


@pytest.mark.parametrize(
    "use",
    [
        "from tools import amp\namp.initialize(a)\n",
        "import tools\ntools.amp.initialize(a)\n",
        "from tools import prepare\nprepare(a)\n",
    ],
)
def test_re_exports_of_a_project_module_are_followed(use: str) -> None:
    p = project(tools="from apex import amp\nfrom apex.amp import initialize as prepare\n", train=use)
    assert "apex.amp.initialize" in [s.name for s in sites(p)]


def test_amp_kept_on_an_object_is_followed() -> None:
    p = project(
        train="from apex import amp\ndef main(args):\n    args.amp = amp\n    run(args)\n"
        "def run(args):\n    args.amp.scale_loss(a, b)\n"
    )
    assert "apex.amp.scale_loss" in [s.name for s in sites(p)]


def test_amp_passed_as_an_argument_is_followed() -> None:
    p = project(train="from apex import amp\ndef run(m):\n    m.scale_loss(a, b)\nrun(amp)\n")
    assert "apex.amp.scale_loss" in [s.name for s in sites(p)]


def test_an_argument_of_the_same_name_that_is_another_thing_is_not() -> None:
    p = project(train="from apex import amp\ndef run(m):\n    m.scale_loss(a, b)\nrun(other)\nprint(amp)\n")
    assert [s.name for s in sites(p)] == ["apex.amp"]


# -- calls and values ------------------------------------------------------------------------------------------------


def callees(text: str) -> list[str]:
    """The project functions that the first call of a file may run."""
    p = project(train=text)
    module = p.modules[0]
    call = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Call))
    return sorted(f"{f.cls.name}.{f.name}" if f.cls else f.name for f in p.callees(module, call))


FIELD = "class B:\n    def __init__(self):\n        self.a = others.Other()\nb = B()\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f()\ndef f():\n    pass\n", ["f"]),
        ("A()\nclass A:\n    def __init__(self):\n        pass\n", ["A.__init__"]),
        ("A().go()\nclass A:\n    def go(self):\n        pass\n", ["A.go"]),
        ("a.go()\nclass A:\n    def go(self):\n        pass\na = A()\n", ["A.go"]),
        (
            "a.go()\nclass A:\n    def go(self):\n        pass\nclass B(A):\n    def go(self):\n        pass\na = A()\n",
            ["A.go", "B.go"],
        ),
        ("unknown()\n", []),
        ("a.update()\nclass A:\n    def update(self):\n        pass\n", []),
        ("a.go()\nclass A:\n    def go(self):\n        pass\n", ["A.go"]),  # the only method of that name
        ("a.go()\nclass A:\n    def go(self):\n        pass\na = make()\n", ["A.go"]),
        ("a.go()\nfrom others import Other\nclass A:\n    def go(self):\n        pass\na = Other()\n", []),
        (f"b.a.go()\nimport others\nclass A:\n    def go(self):\n        pass\n{FIELD}", []),
        (f"b.a.go()\nimport others\nclass A:\n    def go(self):\n        pass\n{FIELD}b.a = a\n", ["A.go"]),
        ("a.go()\nfrom train import Of\nclass A:\n    def go(self):\n        pass\na = Of()\n", ["A.go"]),
        (
            "a.go()\nfrom x import C, make\nclass A:\n    def go(self):\n        pass\na = C() if y else make()\n",
            ["A.go"],
        ),
    ],
)
def test_calls_reach_functions_methods_and_overrides(text: str, names: list[str]) -> None:
    assert callees(text) == names


def reaches(text: str, start: str) -> set[str]:
    """Names of module variables and parameters that may hold what `start` holds."""
    p = project(train=text)
    module = p.modules[0]
    name = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id == start)
    slot = p.slot(module, name)
    assert slot is not None
    return {s.name for s in p.reaches([slot])}


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("b = a\nc = b\n", {"b", "c"}),
        ("def f(x):\n    y = x\nf(a)\n", {"x", "y"}),
        ("def f(x):\n    return x\nb = f(a)\n", {"b"}),
        ("b, c = a, 1\n", {"b"}),
        ("b = [a]\n", {"b"}),
        ("class A:\n    def __init__(self, x):\n        self.x = x\nobj = A(a)\nb = obj.x\n", {"b"}),
        ("b = torch.nn.DataParallel(a)\n", {"b"}),
        ("b = a.cuda()\n", {"b"}),
        ("b = a if c else None\n", {"b"}),
        ("def f(x, y):\n    pass\ndef g(**k):\n    return f(**k)\ng(x=a, y=1)\n", {"x"}),
        ("def f(x, y):\n    pass\ndef g(n, *v, **k):\n    return f(*v, **k)\ng(2, 1, a)\n", {"y"}),
        ("def f(x, y):\n    pass\ndef h(*v):\n    f(*v)\ndef g(*v):\n    h(*v)\ng(1, a)\n", {"y"}),
        ("def f(n, x):\n    pass\ndef g(*v):\n    f(0, *v)\ng(a)\n", {"x"}),
    ],
)
def test_values_flow_through_names_calls_attributes_and_wrappers(text: str, reached: set[str]) -> None:
    assert reached <= reaches(f"a = thing()\n{text}", "a")


@pytest.mark.parametrize(
    ("text", "unreached"),
    [
        ("def f(x, y):\n    pass\ndef g(**k):\n    return f(**k)\ng(x=a, y=1)\n", "y"),
        ("def f(x, y):\n    pass\ndef g(*v):\n    f(*v)\ng(1, a)\n", "x"),
        ("def f(x=0, y=0):\n    pass\ndef g(y, **k):\n    f(**k)\ng(y=a)\n", "f.y"),
        ("def f(*v):\n    f(*v)\nf(a)\n", "nothing, and it ends"),
        (
            "import functools\ndef f(x, y=0):\n    pass\nh = functools.partial(f, 1)\ndef g(*v):\n    h(*v)\ng(a)\n",
            "x",
        ),
    ],
)
def test_what_is_handed_on_by_stars_stays_apart(text: str, unreached: str) -> None:
    p = project(train=f"a = thing()\n{text}")
    module = p.modules[0]
    slot = p.slot(module, next(n for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id == "a"))
    assert slot is not None
    reached = {f"{getattr(getattr(s.holder, 'node', None), 'name', '')}.{s.name}" for s in p.reaches([slot])}
    assert (unreached if "." in unreached else f"f.{unreached}") not in reached


@pytest.mark.parametrize("text", ["b = len(a)\n", "b = a + 1\n", "b = f(a)\n", "b, c = 1, a\n"])
def test_values_do_not_flow_into_what_is_computed_from_them(text: str) -> None:
    assert "b" not in reaches(f"a = thing()\n{text}", "a")


# -- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "files", "meant"),
    [
        ("import utils", {"a__utils": "", "b__utils": ""}, {"a.utils"}),  # beside the importer
        ("import utils", {"b__utils": "", "c__d__utils": ""}, {"b.utils", "c.d.utils"}),  # nowhere near: any of them
        ("import logging", {"b__logging": ""}, set()),  # the standard library's
        ("import logging", {"a__logging": ""}, {"a.logging"}),
        ("from utils import io", {"a__utils__io": "", "b__utils": "", "b__utils__io": ""}, {"a.utils.io"}),  # a folder
    ],
)
def test_an_import_means_the_nearest_module_of_the_name(text: str, files: dict[str, str], meant: set[str]) -> None:
    p = project(a__train=text, **files)
    train = next(m for m in p.modules if m.name == "a.train")
    assert {m.name for m in p.imports[train]} == meant


def test_an_import_means_no_part_of_another_package() -> None:
    package = Module(Path("lib/__init__.py"), "", "lib")
    p = Project([package, *project(train="import utils", lib__utils="", src__utils="").modules])
    train = next(m for m in p.modules if m.name == "train")
    assert {m.name for m in p.imports[train]} == {"src.utils"}


@pytest.mark.parametrize(
    ("made", "own"),
    [
        ("Tokenizer.from_pretrained(card)", False),
        ("Tokenizer(card)", False),
        ("load_tokenizer(card)", True),  # nobody sees what that gives
    ],
)
def test_a_method_of_what_a_library_made_is_none_of_the_program_wherever_it_is_handed(made: str, own: bool) -> None:
    p = project(
        gen=f"""
            from library import Tokenizer, load_tokenizer

            class Generator:
                def __init__(self, card):
                    self.tokenizer = {made}

                def encode(self, ids):
                    return ids
            """,
        masker="""
            class Masker:
                def __init__(self):
                    self.tok = None

                def register(self, tokenizer):
                    self.tok = tokenizer

                def mask(self, text):
                    return self.tok.encode(text)
            """,
        train="""
            from gen import Generator
            from masker import Masker

            generator, masker = Generator("card"), Masker()
            masker.register(generator.tokenizer)
            """,
    )
    module = next(m for m in p.modules if m.name == "masker")
    (call,) = (n for n in module.nodes if isinstance(n, ast.Call))
    assert [f.name for f in p.resolved[call]] == (["encode"] if own else [])


# -- lists taken apart -----------------------------------------------------------------------------------------------

APART = """
    def train(tools):
        optimizer, scheduler = tools
        optimizer.step()
        scheduler.step()

    def prepare(model):
        first = SGD(model)
        second = StepLR(first)
        BUILT
        USED
"""


@pytest.mark.parametrize(
    ("built", "used", "apart"),
    [
        ("tools = [first, second]", "train(tools)", True),
        ("tools = (first, second)", "train(tools)", True),
        ("tools = kept = [first, second]", "train(kept)", True),
        ("tools = [first, second] if model else None", "train(tools)", True),
        ("tools = [first, second] if model else build()", "train(tools)", False),
        ("tools = [first, second]", "tools.reverse()\n        train(tools)", False),
        ("tools = [first]", "tools.append(second)\n        train(tools)", False),
        ("tools = [first]", "tools += [second]\n        train(tools)", False),
        ("tools = list([first, second])", "train(tools)", False),
        ("tools = [first, second]", "for tools in [[second, first]]:\n            train(tools)", False),
        ("tools = [*first, second]", "train(tools)", False),
    ],
)
def test_what_a_list_holds_goes_into_the_place_it_is_taken_apart_into(built: str, used: str, apart: bool) -> None:
    p = project(train=APART.replace("BUILT", built).replace("USED", used))
    train, prepare = (next(f for f in p.functions.values() if f.name == name) for name in ("train", "prepare"))
    reached = p.reaches({Slot(prepare.scope, "first")})
    assert (Slot(train.scope, "optimizer") in reached) or not apart
    assert (Slot(train.scope, "scheduler") not in reached) == apart


@pytest.mark.parametrize(
    ("returned", "optimizer", "scheduler"),
    [
        ("return one, two", ["optimizer"], ["scheduler"]),
        ("return two, one", ["scheduler"], ["optimizer"]),
        ("if two:\n            return one, two\n        return one, None", ["optimizer"], ["scheduler"]),
        ("return list((one, two))", ["optimizer", "scheduler"], ["optimizer", "scheduler"]),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_tuple_that_a_function_returns_may_be_kept_before_it_is_taken_apart(
    returned: str, optimizer: list[str], scheduler: list[str], by_name: bool
) -> None:
    text = """
    def restore(one, two):
        RETURNED

    def prepare(model):
        first = SGD(model)
        second = StepLR(first)
        TAKEN
        optimizer.step()
        scheduler.step()
    """
    taken = "kept = restore(first, second)\n        optimizer, scheduler = kept"
    taken = taken if by_name else "optimizer, scheduler = restore(first, second)"
    p = project(train=text.replace("RETURNED", returned).replace("TAKEN", taken))
    scope = next(f for f in p.functions.values() if f.name == "prepare").scope
    for made, names in (("first", optimizer), ("second", scheduler)):
        reached = p.reaches({Slot(scope, made)})
        assert [n for n in ("optimizer", "scheduler") if Slot(scope, n) in reached] == names
