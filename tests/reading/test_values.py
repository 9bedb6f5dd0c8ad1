"""What an expression may be: every shape through which a value comes to a place, asked at `f(...)` calls of a program."""

from __future__ import annotations

import ast
import itertools

import pytest

from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.returned import Returns
from tests.reading.test_project import project


def asked(p: Project) -> tuple[Values, list[tuple[object, ast.expr]]]:
    """What `ask(...)` calls of a program are given, in the order of files and lines."""
    found = [
        (module, call.args[0])
        for module in p.modules
        for call, _ in module.calls
        if isinstance(call.func, ast.Name) and call.func.id == "ask"
    ]
    return p.once(Values), sorted(found, key=lambda pair: (pair[0].name, pair[1].lineno))


def constants(**files: str) -> object:
    values, (first, *_) = asked(project(**files))
    return values.constants(*first)


def kinds(**files: str) -> set[str]:
    values, (first, *_) = asked(project(**files))
    return {f"{v.kind} {v.name}".strip() for v in values.may_be(*first)}


KNOWN = [
    ("ask('O1')", {"O1"}),
    ("level = 'O1'\nask(level)", {"O1"}),
    ("level = 'O1'\nif fast:\n    level = 'O2'\nask(level)", {"O1", "O2"}),
    ("ask('O1' if fast else 'O0')", {"O1", "O0"}),
    ("a, (b, c) = 1, (2, 3)\nask(c)", {3}),
    ("level = number = 1\nask(f'O{level}')", {"O1"}),
    ("n = 1\nif fast:\n    n = 2\nask('O' + str(n))", {"O1", "O2"}),
    ("n = 1\nask('O%d' % n)", {"O1"}),
    ("n = 1\nask('O{}'.format(n))", {"O1"}),
    ("ask(2.0 ** 16)", {65536.0}),
    ("ask(-1)", {-1}),
    ("ask('o1'.upper())", {"O1"}),
    ("scale = None\nask(scale or 'dynamic')", {"dynamic"}),
    ("scale = 128\nif fast:\n    scale = 0\nask(scale or 'dynamic')", {128, "dynamic"}),
    ("ask(not True)", {False}),
    ("ask((level := 'O1'))", {"O1"}),
    ("for level in ('O1', 'O2'):\n    ask(level)", {"O1", "O2"}),
    ("for i, level in enumerate(['O1', 'O2']):\n    ask(level)", {"O1", "O2"}),
    ("settings = {'opt_level': 'O1', 'scale': 2}\nask(settings['opt_level'])", {"O1"}),
    ("settings = dict(opt_level='O1', scale=2)\nask(settings['opt_level'])", {"O1"}),
    ("settings = dict({'opt_level': 'O1'}, scale=2)\nask(settings['opt_level'])", {"O1"}),
    ("base = {'opt_level': 'O1'}\nsettings = {**base, 'scale': 2}\nask(settings['opt_level'])", {"O1"}),
    ("settings = {}\nsettings['opt_level'] = 'O1'\nask(settings['opt_level'])", {"O1"}),
    ("settings = {}\nsettings.update(opt_level='O1')\nask(settings['opt_level'])", {"O1"}),
    ("settings = {}\nsettings.update({'opt_level': 'O1'})\nask(settings['opt_level'])", {"O1"}),
    ("settings = {'scale': 2}\nask(settings.get('opt_level', 'O1'))", {"O1"}),
    ("settings = {'scale': 2}\nask(settings.get('opt_level'))", {None}),
    ("settings = {'level': 'O1'}\nprint(settings, settings.keys())\nask(settings['level'])", {"O1"}),
    ("settings = {'level': 'O1'}\ndef show(s):\n    print(s)\nshow(settings)\nask(settings['level'])", {"O1"}),
    ("settings = {'amp': {'level': 'O1'}}\nask(settings['amp']['level'])", {"O1"}),
    ("levels = ['O0', 'O1']\nask(levels[-1])", {"O1"}),
    ("levels = ['O0', 'O1']\nask(levels[n])", {"O0", "O1"}),
    ("def level():\n    return 'O1'\nask(level())", {"O1"}),
    ("def level(fast):\n    if fast:\n        return 'O2'\n    return 'O1'\nask(level(x))", {"O1", "O2"}),
    ("def level(fast):\n    if fast:\n        return 'O2'\nask(level(x))", {None, "O2"}),
    ("def pair():\n    return 'O1', 128\nlevel, scale = pair()\nask(scale)", {128}),
    ("def same(x):\n    return x\nother = same('O2')\nask(same('O1'))", {"O1"}),
    ("def same(x):\n    y = x\n    return y\nask(same('O1'))", {"O1"}),
    ("def run(level):\n    ask(level)\nrun('O1')\nrun('O2')", {"O1", "O2"}),
    ("def run(level='O1'):\n    ask(level)\nrun()", {"O1"}),
    ("def run(level='O1'):\n    ask(level)\nrun('O2')", {"O2"}),
    ("def run(level='O1'):\n    inner(level)\ndef inner(level):\n    ask(level)\nrun('O2')", {"O2"}),
    ("def run(n, level='O0'):\n    ask(level)\n    run(n - 1, level)\nrun(3, level='O1')", {"O1"}),
    ("level = 'O'\nlevel = level + '1'\nask(level)", {"O1"}),
    ("level = 'O2'\nlevel = 'O1'\nask(level)", {"O1"}),
    ("for n in load():\n    ask(level)\n    level = 'O1'", {"O1"}),
    ("def run(level):\n    level = 'O1'\n    ask(level)\nrun('O2')", {"O1"}),
    ("def run(level):\n    if level is None:\n        level = 'O1'\n    ask(level)\nrun('O2')", {"O1", "O2"}),
    ("level = 'O2'\ntry:\n    level = 'O1'\nexcept ValueError:\n    ask(level)", {"O1", "O2"}),
    ("level = 'O2'\nshow = lambda: ask(level)\nlevel = 'O1'", {"O1", "O2"}),
    ("level = 'O2'\ndef later():\n    global level\n    level = 'O0'\nlevel = 'O1'\nask(level)", {"O0", "O1"}),
    ("use: bool = load()\nask(use)", {True, False}),
    ("use: bool = True\nask(use)", {True}),
    ("def use() -> bool: ...\nask(use())", {True, False}),
    ("def run(use: bool):\n    ask(use)\nrun(load())", {True, False}),
    ("def run(use: bool):\n    ask(use)\nrun('O1')", {"O1"}),
    ("class Options:\n    use: bool = load()\nask(Options.use)", {True, False}),
    ("ask(load().get('use', False))", {True, False}),
    ("ask(getattr(load(), 'use', True))", {True, False}),
    ("@click.option('--use/--no-use', is_flag=True)\ndef run(use):\n    ask(use)", {True, False}),
    ("def run(*, level):\n    ask(level)\nrun(**{'level': 'O1'})", {"O1"}),
    ("def run(level):\n    ask(level)\nsettings = {'level': 'O1'}\nrun(**settings)", {"O1"}),
    ("def run(n, level):\n    ask(level)\nboth = (1, 'O1')\nrun(*both)", {"O1"}),
    ("def run(**kwargs):\n    inner(**kwargs)\ndef inner(level='O0'):\n    ask(level)\nrun(level='O1')", {"O0", "O1"}),
    ("def run(**kwargs):\n    ask(kwargs['level'])\nrun(level='O1')", {"O1"}),
    ("def run(**kwargs):\n    ask(kwargs.get('level', 'O1'))\nrun()", {"O1"}),
    ("def run(*args):\n    ask(args[0])\nrun('O1')", {"O1"}),
    ("from functools import partial\ndef run(level, n):\n    ask(level)\ngo = partial(run, 'O1')\ngo(3)", {"O1"}),
    ("class A:\n    level = 'O1'\n    def run(self):\n        ask(self.level)", {"O1"}),
    ("class A:\n    level = 'O1'\nask(A.level)", {"O1"}),
    ("class A:\n    level = 'O1'\nask(A().level)", {"O1"}),
    ("class A:\n    level = 'O1'\nclass B(A):\n    pass\nb = B()\nask(b.level)", {"O1"}),
    ("class A:\n    def __init__(self, level):\n        self.level = level\na = A('O1')\nask(a.level)", {"O1"}),
    ("class A:\n    def set(self):\n        self.level = 'O1'\n    def run(self):\n        ask(self.level)", {"O1"}),
    ("class A:\n    @property\n    def level(self):\n        return 'O1'\na = A()\nask(a.level)", {"O1"}),
    (
        "class A:\n    def __init__(self):\n        self.cfg = {'level': 'O1'}\n    def f(self):\n        ask(self.cfg['level'])",
        {"O1"},
    ),
    (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    level: str = 'O1'\ncfg = C()\nask(cfg.level)",
        {"O1"},
    ),
    (
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    level: str = field(default='O1')\n"
        "cfg = C()\nask(cfg.level)",
        {"O1"},
    ),
    (
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    level: str\n    n: int = 3\n"
        "cfg = C('O1', n=4)\nask(cfg.level)",
        {"O1"},
    ),
    ("class A:\n    level = 'O1'\nask(getattr(A, 'level', None))", {"O1", None}),
    ("import copy\nsettings = copy.deepcopy({'level': 'O1'})\nask(settings['level'])", {"O1"}),
]


@pytest.mark.parametrize(("program", "expected"), KNOWN)
def test_constants(program: str, expected: set[object]) -> None:
    assert constants(train=program) == expected


OPEN = [
    "ask(read())",
    "level = 'O1'\nif fast:\n    level = input()\nask(level)",
    "def run(level='O1'):\n    ask(level)",
    "def run(level='O1'):\n    ask(level)\nrun()\nThread(target=run, args=(read(),))",
    "@command\ndef run(level='O1'):\n    ask(level)\nrun()",
    "level = 'O'\nfor n in load():\n    level = level + '1'\nask(level)",
    "level = level\nask(level)",
    "settings = {'level': 'O1'}\nsettings.update(read())\nask(settings['level'])",
    "settings = {'level': 'O1'}\nfor k, v in more:\n    settings[k] = v\nask(settings['level'])",
    "settings = {'level': 'O1'}\ndef fill(d):\n    d['level'] = read()\nfill(settings)\nask(settings['level'])",
    "settings = {'level': 'O1'}\nsettings.pop('level')\nask(settings['level'])",
    "settings = {'level': 'O1'}\nfill(settings)\nask(settings['level'])",
    "settings = {'level': 'O1'}\ndel settings['level']\nask(settings['level'])",
    "settings = {'level': 'O1'}\nfill(into=settings)\nask(settings['level'])",
    "ask({'scale': 2}['level'])",
    "with open_settings() as level:\n    ask(level)",
    "level = 'O1'\nlevel += read()\nask(level)",
    "level = 'O1'\nf = lambda level: ask(level)",
    "ask(args.level)",
    "class A:\n    level = 'O1'\n    def set(self, **more):\n        self.__dict__.update(more)\na = A()\nask(a.level)",
    "class A:\n    level = 'O1'\n    def set(self, k, v):\n        setattr(self, k, v)\na = A()\nask(a.level)",
    "class A:\n    level = 'O1'\nclass B(A):\n    def __init__(self):\n        self.level = read()\na = A()\nask(a.level)",
    "from dataclasses import dataclass\n@dataclass\nclass C:\n    level: str = 'O1'\ndef f(cfg: C):\n    ask(cfg.level)\n"
    "f(parse(C))",
    "from dataclasses import dataclass\n@dataclass\nclass C:\n    level: str = 'O1'\nc = C()\nd = C(**read())\nask(c.level)",
    "from functools import partial\ndef run(level, n):\n    ask(level)\nrun('O1', 1)\nmap(partial(run, n=2), levels)",
    "def levels():\n    yield 'O1'\nask(levels())",
    "ask(2 ** 100000)",
    "def run(level):\n    ask(level)\nrun(1)\nrun(*read())",
]


@pytest.mark.parametrize("program", OPEN)
def test_what_is_not_in_sight_is_no_constant(program: str) -> None:
    assert constants(train=program) is None


OPTION = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--level'{})\nargs = parser.parse_args()\n"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (", choices=['O0', 'O1'], default='O1'", {"O0", "O1"}),
        (", choices=['O0', 'O1']", {"O0", "O1", None}),
        (", choices=['O0', 'O1'], required=True", {"O0", "O1"}),
        (", action='store_true'", {True, False}),
        (", default='O1'", None),
    ],
)
def test_options_of_a_command_line(declared: str, expected: object) -> None:
    program = OPTION.format(declared)
    assert constants(train=program + "ask(args.level)") == expected
    assert constants(train=program + "def run(opt):\n    ask(opt.level)\nrun(args)") == expected
    assert constants(train=program + "ask(getattr(args, 'level'))") == expected
    assert constants(train=program + "ask(vars(args)['level'])") == expected


def test_what_a_program_assigns_to_an_option_counts() -> None:
    program = OPTION.format(", choices=['O0', 'O1'], required=True") + "args.level = 'O2'\nask(args.level)"
    assert constants(train=program) == {"O0", "O1", "O2"}


def test_what_another_program_assigns_to_its_own_option_does_not() -> None:
    program = OPTION.format(", choices=['O0', 'O1'], required=True") + "ask(args.level)"
    other = OPTION.format("")
    assert constants(train=program, test=other + "args.level = load()") == {"O0", "O1"}
    handed = "def change(args):\n    args.level = load()"
    assert constants(train=program, test=other + handed) is None
    assert constants(train=program, test="opt.level = load()") is None  # it has no command line of its own


def test_values_of_other_files() -> None:
    settings = (
        "LEVEL = 'O1'\ncfg = {'level': 'O2'}\ndef level(fast='O3'):\n    return fast\nclass A:\n    level = 'O0'\n"
    )
    for use, expected in (
        ("from settings import LEVEL\nask(LEVEL)", {"O1"}),
        ("import settings\nask(settings.LEVEL)", {"O1"}),
        ("import settings as s\nask(s.cfg['level'])", {"O2"}),
        ("from settings import level\nask(level())", {"O3"}),
        ("from settings import A\nask(A.level)", {"O0"}),
        ("import settings\nask(settings.A().level)", {"O0"}),
        ("from settings import *\nask(LEVEL)", {"O1"}),
        ("from again import LEVEL\nask(LEVEL)", {"O1"}),
        ("import settings\nsettings.LEVEL = 'O2'\nask(settings.LEVEL)", {"O1", "O2"}),
    ):
        assert constants(settings=settings, again="from settings import LEVEL\n", train=use) == expected, use


def test_kinds_of_values() -> None:
    assert kinds(train="from apex import amp\nask(amp)") == {"named apex.amp"}
    assert kinds(train="import torch\nask(torch.float16)") == {"named torch.float16"}
    assert kinds(train="def run(amp):\n    ask(amp)\nfrom apex import amp\nrun(amp)\nrun(None)") == {
        "named apex.amp",
        "constant a setting",
    }
    assert kinds(train="class A: pass\nask(A)") == {"class"}
    assert kinds(train="class A: pass\na = A()\nask(a)") == {"call"}
    assert kinds(train="class A:\n    def f(self):\n        ask(self)") == {"instance"}
    assert kinds(train="def f(): pass\ng = f if x else None\nask(g)") == {"function", "constant"}
    assert kinds(train="ask(lambda x: x)") == {"function"}
    assert kinds(train="def f(x):\n    ask(x)") == {"parameter nothing in sight calls it"}


def test_an_answer_does_not_hang_on_what_was_asked_before() -> None:
    program = """
def a(x, n):
    ask(x)
    b(x, n)
def b(x, n):
    ask(x)
    c(x, n)
def c(x, n):
    ask(x)
    if n:
        a(x, n - 1)
        b('O2', n)
a('O1', 3)
c('O0', 3)
"""
    fresh: list[list[object]] = []
    for order in itertools.permutations(range(3)):
        values, places = asked(project(train=program))
        answers = {i: values.constants(*places[i]) for i in order}
        fresh.append([answers[i] for i in range(3)])
    assert fresh == [[{"O0", "O1", "O2"}] * 3] * 6


def test_what_calls_pass() -> None:
    p = project(train="def run(model, level=None):\n    pass\nrun(net, 'O1')\nrun(net)\ndef other(x):\n    pass\n")
    functions = {f.name: f for f in p.functions.values()}
    passed = p.once(Values).passed(functions["run"], "level")
    assert {v.node.value for v in passed if isinstance(v.node, ast.Constant)} == {"O1", None}
    assert {v.kind for v in p.once(Values).passed(functions["other"], "x")} == {"parameter"}
    assert p.once(Values).passed(functions["other"], "y") == frozenset()


def test_what_hangs_on_too_much_is_unknown_and_the_rest_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.reading.values.table.ASKED", 200)
    steps = "\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(300))
    program = f"{steps}\ndef f300(x): return 1\nask(f0(1))\nask(f299(1))\nlevel = 'O1'\nask(level)\nask(f1(1))\n"
    values, (long, near, other, again) = asked(project(train=program))
    assert [v.kind for v in values.may_be(*long)] == ["unknown"]
    assert values.constants(*near) == {1}
    assert values.constants(*other) == {"O1"}
    assert values.constants(*again) is None


def test_too_many_values_are_none_that_are_known() -> None:
    program = "def run(x):\n    ask(x)\n" + "".join(f"run({i})\n" for i in range(200))
    assert constants(train=program) is None
    assert kinds(train=program) == {"unknown it may be too many things"}


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("run(1)", {None}),
        ("run(1, True)", {True}),
        ("run(1, on=x or None)", None),
        ("on = False\nrun(1, on)", {False}),
        ("run(*(1, True))", {True}),
        ("run(1, **{'on': True})", {True}),
        ("more = {'on': True}\nrun(1, **more)", {True}),
        ("more = {'on': True}\nmore.clear()\nrun(1, **more)", None),  # it may lack the key
        ("run(1, **{'off': True})", {None}),
        ("run(1, **read())", None),
        ("class Run:\n    pass\nrun(1, Run())", None),
    ],
)
def test_what_one_call_gives(call: str, given: set[object] | None) -> None:
    p = project(train=f"def run(x, on=None):\n    pass\nrun(1, 'other')\n{call}\n")
    (function,) = p.functions.values()
    module, last = p.calls[function][-1]
    assert p.once(Values).given(function, module, last, "on") == given


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("on", False),
        ("not on and mode in ('O1', 'O2')", True),
        ("mode not in ['O0', 'O1']", False),
        ("x or mode == 'O1'", True),
        ("x and on", False),
        ("x or on", None),
        ("mode in levels", None),
    ],
)
def test_what_a_test_comes_to_where_one_call_runs_it(test: str, told: bool | None) -> None:
    p = project(
        train=f"def run(x, mode='O1', on=None):\n    return {test}\nrun(read(), on=True)\nrun(read(), on=False)\n"
    )
    (function,) = p.functions.values()
    module, last = p.calls[function][-1]
    (returned,) = function.node.body
    assert isinstance(returned, ast.Return)
    assert returned.value is not None
    assert p.once(Values).told(function, module, last, returned.value) is told


NETWORKS = "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"


@pytest.mark.parametrize(
    "kept",
    [
        "net = Net().cuda()",
        "net = nn.DataParallel(Net())",
        "nets = {'a': Net()}\nnet = nets['a']",
        "def build():\n    return Net(), 3\nnet, n = build()",
        "from apex import amp\nopt = make()\nnet, opt = amp.initialize(Net(), opt)",
        "net = None\nif fast:\n    net = Net()",
    ],
)
def test_what_a_network_gives_is_known_wherever_it_is_kept(kept: str) -> None:
    p = project(train=f"{NETWORKS}{kept}\nask(net(x))\n")
    ((module, call),) = asked(p)[1]
    assert isinstance(call, ast.Call)
    assert p.once(Returns).of(module, call) == "tensor"
