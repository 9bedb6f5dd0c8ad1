"""Imports of Apex, their guards and flags: gone once nothing uses them, kept where something does."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_rewrite, check_untouched, rewrite, rewrite_files, run_files
from tests.rules.programs import APEX_LOOP, INITIALIZE, MODEL, NATIVE_LOOP, SCALER, apex, check_refused, found, native

# -- forms of the import ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("imports", "prefix"),
    [
        ("from apex import amp", "amp."),
        ("from apex import amp as mixed", "mixed."),
        ("from apex import (\n    amp,  # mixed precision\n)", "amp."),
        ("import apex", "apex.amp."),
        ("import apex as nvidia", "nvidia.amp."),
        ("import apex.amp", "apex.amp."),
        ("import apex.amp as mixed", "mixed."),
        ("from apex.amp import initialize, scale_loss", ""),
        ("from apex.amp import *", ""),
        ("from apex.amp.frontend import initialize\nfrom apex.amp.handle import scale_loss", ""),
    ],
)
def test_every_form_of_the_import_is_followed_and_goes(imports: str, prefix: str) -> None:
    before = apex(APEX_LOOP.replace("amp.", prefix), INITIALIZE.replace("amp.", prefix), imports=imports)
    result = check_rewrite(before, native())
    assert found(result, "AMP101")


def test_renamed_functions_are_followed() -> None:
    before = apex(
        APEX_LOOP.replace("amp.scale_loss", "scaled"),
        INITIALIZE.replace("amp.initialize", "prepare"),
        imports="from apex.amp import initialize as prepare, scale_loss as scaled",
    )
    check_rewrite(before, native())


@pytest.mark.parametrize(
    ("imports", "left"),
    [
        ("import os, apex.amp as amp, sys\nprint(os, sys)", "import os, sys\nprint(os, sys)"),
        ("import apex.amp as amp, sys\nprint(sys)", "import sys\nprint(sys)"),
        ("import os; from apex import amp; print(os)", "import os; print(os)"),
    ],
)
def test_other_imports_on_the_same_line_stay(imports: str, left: str) -> None:
    check_rewrite(apex(imports=imports), native(imports=left))


# -- guards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "imports",
    [
        'try:\n    from apex import amp\nexcept ImportError:\n    raise ImportError("please install apex")',
        "try:\n    from apex import amp\nexcept ImportError:\n    amp = None",
        "try:\n    from apex import amp\nexcept ImportError:\n    pass",
        "try:\n    from apex import amp\nexcept ImportError:\n    print('no apex')",
        "try:\n    from apex import amp\n\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False",
        "try:\n    import apex\n    from apex import amp\nexcept (ImportError, ModuleNotFoundError):\n    apex = None",
        "HAS_APEX = True\ntry:\n    from apex import amp\nexcept ImportError:\n    HAS_APEX = False",
    ],
)
def test_a_guard_that_only_served_apex_goes_as_a_whole(imports: str) -> None:
    check_rewrite(apex(imports=imports), native())


def test_please_install_apex_goes() -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False"
    check = 'if not HAS_APEX:\n    raise RuntimeError("please install apex")\n'
    check_rewrite(apex(imports=guard, prepare=check + INITIALIZE), native())


@pytest.mark.parametrize("test", ["HAS_APEX", "HAS_APEX is True", "amp is not None", "amp"])
def test_a_branch_on_availability_takes_the_apex_side(test: str) -> None:
    guard = (
        "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    amp = None\n    HAS_APEX = False"
    )
    loop = APEX_LOOP.replace(
        "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
        f"if {test}:\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
        "else:\n    loss.backward()",
    )
    check_rewrite(apex(loop, f"if {test}:\n    {INITIALIZE}", imports=guard), native())


def test_a_condition_keeps_what_else_it_asks() -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False"
    options = "from options import args"
    use = "if args.verbose and HAS_APEX:\n    print(args)\n"
    before = apex(imports=f"{guard}\n{options}", prepare=use + INITIALIZE)
    check_rewrite(before, native(imports=options, prepare="if args.verbose:\n    print(args)\n" + SCALER))


def test_a_flag_computed_from_availability_keeps_the_rest() -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False"
    options = "from options import args"
    before = apex(
        imports=f"{guard}\n{options}",
        prepare="use_amp = args.fp16 and HAS_APEX\n" + INITIALIZE.replace(")", ", enabled=use_amp)"),
    )
    loop = NATIVE_LOOP.replace("float16)", "float16, enabled=bool(use_amp))")
    prepare = "use_amp = args.fp16\n" + SCALER.replace(")", ", enabled=bool(use_amp))")
    check_rewrite(before, native(loop, prepare, imports=options))


def test_a_function_that_only_checked_for_apex_is_no_block_left_empty() -> None:
    source = """
        def check():
            try:
                from apex import amp
            except ImportError:
                raise ImportError("please install apex")


        check()
        """
    expected = """
        def check():
            pass


        check()
        """
    check_rewrite(source, expected)


def test_an_import_nothing_uses_goes() -> None:
    check_rewrite("import os\nfrom apex import amp\n\nprint(os.name)\n", "import os\n\nprint(os.name)\n")


def test_other_imports_that_only_served_apex_go_with_it() -> None:
    before = apex(imports="import warnings\nfrom apex import amp", prepare=INITIALIZE)
    check_rewrite(before, native(imports="import warnings"))


# -- what stays ------------------------------------------------------------------------------------------------------


def test_an_import_stays_while_a_bare_reference_remains_and_that_is_reported() -> None:
    result = rewrite(apex(imports="import apex").replace("amp.", "apex.amp.") + "check(apex.__version__)\n")
    assert result.after is not None
    assert result.status == "partial"
    assert "import apex\n" in result.after
    assert [f.code for f in result.findings if f.status == "manual"] == ["AMP102"]


def test_a_name_in_all_keeps_its_import_and_is_reported() -> None:
    result = rewrite('from apex import amp\n\n__all__ = ["amp"]\n')
    assert result.after is None
    assert [f.code for f in result.findings if f.status == "manual"] == ["AMP102"]


def test_a_flag_that_something_else_reads_keeps_its_definition() -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False"
    result = rewrite(apex(imports=guard, tail="report(HAS_APEX)\n"))
    text = result.after if result.after is not None else apex(imports=guard)
    assert "HAS_APEX = " in text


def test_an_apex_module_without_a_rule_is_reported_not_dropped() -> None:
    result = check_refused("import apex\n\napex.something_else(3)\n", "AMP102")
    assert result.findings[0].line == 3


@pytest.mark.parametrize(
    "source",
    [
        "from mylib import apex\n\napex.amp.initialize(1)\n",
        "from . import amp, scale_loss\n\namp.initialize(1)\nscale_loss(2)  # apex\n",
        "amp = 3\nprint(amp)  # apex\n",
        "def amp(x):\n    return x\n\n\nprint(amp('apex'))\n",
        "import torch\n\nwith torch.autocast('cuda'):  # no apex here\n    pass\n",
        "text = 'from apex import amp'\n",
        '"""Needs no apex: from apex import amp."""\n',
        "# from apex import amp\n",
    ],
)
def test_what_only_looks_like_apex_is_left_alone(source: str) -> None:
    check_untouched(source)


def test_a_flag_named_amp_and_the_module_are_kept_apart() -> None:
    before = apex(
        APEX_LOOP.replace(
            "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
            "if amp:\n    with apex.amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
            "else:\n    loss.backward()",
        ),
        "if amp:\n    " + INITIALIZE.replace("amp.", "apex.amp."),
        imports="import apex\nfrom options import amp",
    )
    after = native(
        NATIVE_LOOP.replace("float16)", "float16, enabled=bool(amp))"),
        SCALER.replace(")", ", enabled=bool(amp))"),
        imports="from options import amp",
    )
    check_rewrite(before, after)


def test_torch_is_imported_where_the_file_did_not() -> None:
    before = apex().replace("import torch\n", "").replace("torch.optim.SGD(model.parameters(), lr=0.1)", "sgd(model)")
    after = rewrite(before).after
    assert after is not None
    assert after.startswith("import torch\n")


def test_torch_is_called_what_the_file_calls_it() -> None:
    before = apex().replace("import torch", "import torch as th").replace("torch.optim", "th.optim")
    after = native().replace("import torch", "import torch as th").replace("torch.", "th.")
    check_rewrite(before, after)


def test_the_first_import_comes_after_docstring_and_future() -> None:
    before = '"""Train."""\nfrom __future__ import annotations\n\n' + apex().replace("import torch\n", "").replace(
        "torch.optim.SGD(model.parameters(), lr=0.1)", "sgd(model)"
    )
    after = rewrite(before).after
    assert after is not None
    assert after.startswith('"""Train."""\nfrom __future__ import annotations\n\nimport torch\n')


def test_an_import_inside_the_function_goes() -> None:
    source = """
        import torch


        def train(model, optimizer, criterion, loader):
            from apex import amp

            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    expected = """
        import torch


        def train(model, optimizer, criterion, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    check_rewrite(source, expected)


def test_a_guard_with_other_imports_keeps_them() -> None:
    guard = "try:\n    from apex import amp\n    import wandb\nexcept ImportError:\n    wandb = None"
    after = rewrite(apex(imports=guard, tail="print(wandb)\n")).after
    assert after is not None
    assert "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n" in after
    assert "apex" not in after


def test_guards_stay_where_everything_they_guard_is_left_to_a_person() -> None:
    check_refused(
        """
        try:
            from apex import amp
            APEX = True
        except ImportError:
            APEX = False

        def setup(model, optimizer, kwargs):
            if not APEX:
                return model, optimizer
            return amp.initialize(model, **kwargs)
        """,
        "AMP111",
    )


@pytest.mark.parametrize("use", ["getattr(amp, name)(model)", "dispatch[name](amp)"])
def test_dispatch_by_string_is_reported_and_nothing_is_mixed(use: str) -> None:
    result = check_refused(apex(imports="from apex import amp\nfrom options import dispatch, name", tail=use), "AMP102")
    assert result.after is None


def test_a_parameter_named_amp_shadows_the_module() -> None:
    before = textwrap.dedent("""
        import torch
        from apex import amp

        from project import build, criterion, loader


        def use(amp):
            return amp.initialize(1)


        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        """)
    after = rewrite(before).after
    assert after is not None
    assert "def use(amp):\n    return amp.initialize(1)\n" in after
    assert "apex" not in after


@pytest.mark.parametrize("clause", ["else", "finally"])
def test_what_a_guard_does_in_else_or_finally_still_happens(clause: str) -> None:
    guard = f"try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n{clause}:\n    setup()"
    after = rewrite(apex(imports=f"from project import setup\n{guard}")).after
    assert after is not None
    assert "setup()\n" in after.replace("import setup\n", "")


def test_a_name_that_the_guard_sets_for_others_is_a_plain_assignment() -> None:
    guard = 'try:\n    from apex import amp\n    MODE = "apex"\nexcept ImportError:\n    MODE = "plain"'
    check_rewrite(apex(imports=guard, tail="print(MODE)"), native(imports='MODE = "apex"', tail="print(MODE)"))


@pytest.mark.parametrize(
    "question", ["assert amp, 'no apex'", "assert amp is not None", "if not amp:\n    raise SystemExit(1)"]
)
def test_a_question_whether_apex_is_there_is_no_obstacle(question: str) -> None:
    guard = f"try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n{question}"
    check_rewrite(apex(imports=guard), native())


REQUIRE = """
def require(held, message="", error=AssertionError):
    \"\"\"Raise unless something holds.\"\"\"
    if not held:
        raise error(message)
"""
NOTHING_ELSE = """
def require(held, message=""):
    assert held, message
"""
COUNTS = """
def require(held, message=""):
    asked.append(message)
    if not held:
        raise RuntimeError(message)
"""


@pytest.mark.parametrize("helper", [REQUIRE, NOTHING_ELSE])
@pytest.mark.parametrize(
    "question", ['require(amp is not None, "no apex")', 'require(message="no apex", held=amp is not None)']
)
def test_a_function_that_only_asserts_is_an_assertion(helper: str, question: str) -> None:
    guard = (
        f"try:\n    from apex import amp\nexcept ImportError:\n    amp = None\nfrom checks import require\n{question}"
    )
    files = {"train.py": apex(imports=f"{guard}\nrequire(len(loader) > 0)"), "checks.py": helper}
    result = rewrite_files(files)["train.py"]
    assert result.after == native(imports="from checks import require\nrequire(len(loader) > 0)")


def test_a_function_that_does_more_than_assert_is_left_alone() -> None:
    guard = "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\nfrom checks import require\n"
    result = rewrite_files({"train.py": apex(imports=f"{guard}require(amp is not None)"), "checks.py": COUNTS})[
        "train.py"
    ]
    assert [f.code for f in result.findings if f.status == "manual"]
    assert "require(amp is not None)" in (result.after or "require(amp is not None)")


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("assert not fp16 or fp16 and HAS_APEX, 'needs apex'", ""),
        ("assert not fp16 or (HAS_APEX and fp16)", ""),
        ("assert other or fp16 and HAS_APEX", "assert other or fp16"),
        ("assert not other or other", "assert not other or other"),
    ],
)
def test_an_assertion_that_always_holds_with_apex_goes(asked: str, kept: str) -> None:
    guard = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\n"
    check_rewrite(apex(imports=f"{guard}{asked}"), native(imports=kept))


GUARDED = """\
try:
    from apex import amp
    from apex.contrib.xentropy import SoftmaxCrossEntropyLoss
    HAS_APEX = True
except ImportError:
    HAS_APEX = False
"""


@pytest.mark.parametrize(
    "test",
    [
        "if HAS_APEX:\n    criterion = SoftmaxCrossEntropyLoss()",
        "criterion = SoftmaxCrossEntropyLoss() if HAS_APEX else torch.nn.CrossEntropyLoss()",
        'if not HAS_APEX:\n    raise RuntimeError("needs apex")\ncriterion = SoftmaxCrossEntropyLoss()',
        "assert HAS_APEX\ncriterion = SoftmaxCrossEntropyLoss()",
    ],
)
def test_a_guard_of_what_stays_with_apex_stays(test: str) -> None:
    after = rewrite(apex(imports=GUARDED, model=f"{MODEL}\n{test}")).after
    assert after is not None
    assert f"{test}\n" in after
    assert "HAS_APEX = True" in after
    assert "HAS_APEX = False" in after
    assert "import amp" not in after


def test_a_guard_of_amp_beside_what_stays_goes() -> None:
    prepare = f"if HAS_APEX:\n    {INITIALIZE}"
    after = rewrite(
        apex(imports=GUARDED, prepare=prepare, model=f"{MODEL}\ncriterion = SoftmaxCrossEntropyLoss()")
    ).after
    assert after is not None
    assert f"\n{SCALER}\n" in after
    assert "if HAS_APEX" not in after


def test_no_blank_line_is_left_where_the_last_statement_of_a_method_went() -> None:
    result = rewrite(
        """
        import warnings
        from project import loop
        try:
            from apex import amp
            AVAILABLE = True
        except ImportError:
            AVAILABLE = False


        class Trainer:
            def __init__(self, use_amp):
                self.use_amp = use_amp and AVAILABLE

                if use_amp and not AVAILABLE:
                    warnings.warn("install apex first")

            def fit(self, model, optimizer):
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=self.use_amp)
                for x in loop:
                    loss = model(x).sum()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
        """
    )
    assert result.after is not None
    assert "        self.use_amp = use_amp\n\n    def fit(" in result.after


# -- where Apex stays ------------------------------------------------------------------------------------------------


def test_flags_and_guards_stay_with_a_unit_that_needs_a_hand() -> None:
    text = """
        import torch

        try:
            from apex import amp
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False


        def backward(loss, optimizer):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()


        scaler = torch.cuda.amp.GradScaler()
        """
    after = rewrite(text).after
    assert after is not None
    assert after == textwrap.dedent(text).lstrip("\n").replace("cuda.amp.GradScaler()", 'amp.GradScaler("cuda")')


@pytest.mark.parametrize("select", ["AMP9", "AMP6"])
def test_codes_that_were_not_asked_for_leave_imports_and_guards_of_apex(select: str) -> None:
    guard = (
        "try:\n    from apex import amp, optimizers\nexcept ImportError:\n    amp = None\nif amp is None:\n    exit(1)"
    )
    result = rewrite(apex(imports=guard, tail="print(torch.cuda.amp.autocast())"), select=(select,))
    assert (result.after is None) == (select == "AMP6")
    assert result.after is None or guard in result.after


def test_an_import_that_only_a_parameter_hides_is_not_apexs_to_take_out() -> None:
    tail = "def show(plot):\n    return plot"
    check_rewrite(
        apex(imports="from apex import amp\nfrom project import plot", tail=tail),
        native(imports="from project import plot", tail=tail),
    )


EXTENSION = """
import torch
import syncbn
from apex import amp


def stats(x):
    return syncbn.welford_mean_var(x)
"""


def test_an_extension_that_apex_compiles_is_reported() -> None:
    result = rewrite(EXTENSION)
    assert [f.construct for f in result.findings if f.status == "manual"] == ["import syncbn"]


def test_a_module_of_the_project_or_a_guarded_import_is_none() -> None:
    results = rewrite_files({"train.py": EXTENSION, "syncbn.py": "def welford_mean_var(x):\n    return x\n"})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    guarded = EXTENSION.replace("import syncbn\n", "try:\n    import syncbn\nexcept ImportError:\n    syncbn = None\n")
    assert not [f for f in rewrite(guarded).findings if f.status == "manual"]


@pytest.mark.parametrize(
    ("importing", "test"),
    [
        ("import sys", '"apex" not in sys.modules'),
        ("import sys", 'not ("apex.amp" in sys.modules)'),
        ("import importlib.util", 'importlib.util.find_spec("apex") is None'),
        ("from importlib.util import find_spec", 'not find_spec("apex")'),
    ],
)
def test_a_guard_that_looks_apex_up_by_name_goes_with_it(importing: str, test: str) -> None:
    guard = "try:\n    from apex import amp\nexcept ImportError as error:\n    missing = error"
    raises = f'if {test}:\n    raise ImportError("install apex")\n'
    result = rewrite(apex(imports=f"{importing}\n{guard}", model=raises + MODEL))
    assert result.after is not None
    assert "install apex" not in result.after
    assert "apex" not in result.after


LOOKED_UP = """
    import torch
    {imports}

    def train(model, optimizer, loader, fp16):
        if fp16:
            {own}
            if not has_apex:
                raise RuntimeError("Apex is not installed")
        if fp16:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = model(x, y)
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
    """


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ("find_spec('apex') is not None", False),
        ("bool(find_spec('apex'))", False),
        ("not find_spec('apex.amp') is None", False),
        ("find_spec('faiss') is not None", True),
        ("make(find_spec('apex'))", True),
    ],
)
def test_a_flag_that_looks_apex_up_goes_with_what_it_refused(found: str, refused: bool) -> None:
    line = f"from importlib.util import find_spec\n    has_apex = {found}"
    result = rewrite(LOOKED_UP.format(imports=line, own="pass"))
    assert result.after is not None
    assert ("raise RuntimeError" in result.after) is refused
    assert ("has_apex" in result.after) is refused


@pytest.mark.parametrize(
    ("imports", "own", "package"),
    [
        ("from tools.env import has_apex", "pass", ""),
        ("", "from tools.env import has_apex", ""),
        ("", "from tools import has_apex", "from tools.env import *\n__all__ = ['has_apex']\n"),
    ],
)
def test_a_flag_of_another_file_that_looks_apex_up(imports: str, own: str, package: str) -> None:
    env = "import importlib.util\n\nhas_apex = importlib.util.find_spec('apex') is not None\n"
    files = {"tools/__init__.py": package, "tools/env.py": env, "train.py": LOOKED_UP.format(imports=imports, own=own)}
    results = rewrite_files(files)
    after = results["train.py"].after
    assert after is not None
    assert "has_apex" not in after
    assert "raise" not in after
    kept = results["tools/env.py"].after if "tools/env.py" in results else None
    assert (kept is None) is bool(package)  # what a package offers stays


def test_a_flag_that_looks_apex_up_and_is_set_again_is_asked_still() -> None:
    line = "from importlib.util import find_spec\n    has_apex = find_spec('apex') is not None\n    has_apex = has_apex and probe()"
    result = rewrite(LOOKED_UP.format(imports=line, own="pass"))
    assert "raise RuntimeError" in (result.after or "raise RuntimeError")


def test_what_other_files_read_through_the_module_stays() -> None:
    parts = """
        try:
            from apex.optimizers import FusedAdam as Adam
            from apex.normalization import FusedLayerNorm as Norm
        except ImportError:
            from torch.optim import AdamW as Adam
            from torch.nn import LayerNorm as Norm
        """
    use = "from lib import parts\n\n\ndef make(weights):\n    return parts.Adam(weights, lr=0.1), parts.Norm(4)\n"
    results = rewrite_files({"lib/__init__.py": "", "lib/parts.py": parts, "lib/use.py": use})
    after = results["lib/parts.py"].after
    assert after == "from torch.optim import AdamW as Adam\nfrom torch.nn import LayerNorm as Norm\n"
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]


PROBE = """
    try:
        from apex import amp
        _has_apex = True
    except ImportError:
        _has_apex = False


    def is_apex_available():
        return _has_apex
"""
READS = """
    from probe import is_apex_available

    if is_apex_available():
        from apex.contrib.unknown import something


    def run(x):
        return something(x) if is_apex_available() else x
"""


def test_a_probe_stays_while_its_answer_is_for_code_that_needs_apex() -> None:
    results = rewrite_files({"probe.py": PROBE, "reads.py": READS})
    assert results["probe.py"].after is None
    assert not [f for f in results["probe.py"].findings if "nothing uses" in f.message]


def test_a_probe_that_stays_is_told_as_what_it_is() -> None:
    (told,) = rewrite_files({"probe.py": PROBE, "reads.py": READS})["probe.py"].findings
    assert (told.code, told.status) == ("AMP101", "note")
    assert "whether Apex is installed" in told.message


LOCAL = """
    import torch
    try:
        from apex.normalization import FusedLayerNorm as Fused

        class Norm(Fused):
            pass
    except ImportError:
        Norm = torch.nn.LayerNorm


    def make(size, twice):
        if twice:
            Fused = torch.nn.Sequential
        else:
            Fused = Norm
        return Fused(Norm(size)) if twice else Fused(size)


    print(make(4, True)(torch.ones(2, 4)).shape == (2, 4))
    """


def test_a_functions_own_variable_of_the_same_name_uses_no_import() -> None:
    result = rewrite(LOCAL)
    assert result.after is not None
    assert "apex" not in result.after
    assert not [f for f in result.findings if f.status == "manual"]
    exec(result.after, {})


CONTRIB = """
    import torch
    try:
        from apex.contrib.layer_norm import FastLayerNorm
        FAST = True
    except ImportError:
        FAST = False
    try:
        from apex.normalization import FusedLayerNorm
    except ImportError:
        FusedLayerNorm = torch.nn.LayerNorm

    if FAST:

        class Fast(FastLayerNorm):
            pass


    def make(size):
        if FAST:
            kind = Fast
        else:
            kind = FusedLayerNorm
        return kind(size)


    print(make(4)(torch.ones(2, 4)).shape == (2, 4))
    """


def test_a_flag_of_a_part_that_stays_is_still_asked() -> None:
    after = rewrite(CONTRIB).after
    assert after is not None
    assert "    if FAST:\n        kind = Fast\n    else:\n        kind = FusedLayerNorm\n" in after
    exec(after, {})


def test_a_probe_that_nobody_needs_apex_for_says_that_all_is_there() -> None:
    after = rewrite_files({"probe.py": PROBE})["probe.py"].after
    assert after is not None
    assert "apex import" not in after
    assert "_has_apex = True" in after


@pytest.mark.parametrize("stays", ["optimizers", "amp_C"])
def test_a_star_of_which_nothing_is_used_goes_beside_what_stays(stays: str) -> None:
    uses = {"optimizers": "print(optimizers.FusedLAMB)", "amp_C": "print(amp_C.multi_tensor_scale)"}[stays]
    other = {"optimizers": "from apex import amp, optimizers", "amp_C": "import amp_C\nfrom apex import amp"}[stays]
    after = rewrite(apex(imports=f"from apex.fp16_utils import *\n{other}", tail=uses)).after
    assert after is not None
    assert "fp16_utils" not in after
    assert stays in after


def test_a_star_stays_for_a_name_that_stays() -> None:
    imports = "from apex.fp16_utils import *\nfrom apex import amp, optimizers"
    after = rewrite(apex(imports=imports, tail="print(optimizers.FusedLAMB)\nprint(DynamicLossScaler)")).after
    assert after is not None
    assert "from apex.fp16_utils import *" in after


def test_a_flag_of_what_stays_is_asked_by_all_who_read_what_only_it_brings() -> None:
    """Apex without the extension of that class has none: `Quick` is defined under the flag alone."""
    guard = (
        "import torch\n\ntry:\n    from apex.contrib.layer_norm.layer_norm import FastLayerNorm\n    FAST = True\n"
        "except ImportError:\n    FAST = False\n"
    )
    rest = (
        "\n\nclass Plain({}):\n    pass\n\n\nif FAST:\n\n    class Quick(FastLayerNorm):\n        pass\n\n\n"
        "def build(n):\n    if FAST:\n        kind = Quick\n    else:\n        kind = Plain\n    return kind(n)\n"
    )
    other = "try:\n    from apex.normalization import FusedLayerNorm\nexcept ImportError:\n    FusedLayerNorm = None\n"
    check_rewrite(guard + other + rest.format("FusedLayerNorm"), guard + rest.format("torch.nn.LayerNorm"))


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("apex", "apex.amp.initialize(model, optimizer)"),
        ("apex", "apex.parallel.convert_syncbn_model(model)  # apex"),
        ("amp", "amp.initialize(model, optimizer)  # of apex"),
    ],
)
def test_apex_that_is_never_imported_is_told(name: str, used: str) -> None:
    result = rewrite(f"import torch\n\ndef train(model, optimizer):\n    return {used}\n")
    assert result.after is None
    (finding,) = result.findings
    assert (finding.code, finding.status, finding.construct, finding.line) == ("AMP102", "manual", name, 4)
    assert "never imported" in finding.message


@pytest.mark.parametrize(
    "source",
    [
        "from tools import *  # apex\n\nmodel = amp.initialize(model)\n",
        "def train(amp, model):  # apex's\n    return amp.initialize(model)\n",
        "apex = make()\nprint(apex.parallel)\n",
        "print(apex.height)\n",
    ],
)
def test_another_thing_of_that_name_is_not(source: str) -> None:
    check_untouched(source)


PARTLY = """
import torch

try:
    from apex import amp

    HAVE = True
except ImportError:
    HAVE = False


class Learner:
    def __init__(self, model, data, fp16=True):
        SWITCH
        self.model = model
        self.data = data
        self.fp16 = fp16
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Plain(Learner):
    def fit(self):
        if self.fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        for x, y in self.data:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            if self.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()


class Closing(BASE):
    def __init__(self, model, data, fp16=True):
        self.one, self.data, self.fp16 = model, data, fp16

    def search(self):
        found = torch.optim.LBFGS(self.one.parameters(), lr=0.1)
        if self.fp16:
            self.one, found = amp.initialize(self.one, found, opt_level="O1")
        for x, y in self.data:
            loss = torch.nn.functional.mse_loss(self.one(x), y)
            with amp.scale_loss(loss, found) as scaled:
                scaled.backward()
            found.step(lambda: loss)
"""


@pytest.mark.parametrize(
    "switch",
    [
        "if fp16 and HAVE is False:\n            fp16 = False",
        "if not HAVE:\n            fp16 = False",
        "fp16 = fp16 and HAVE",
        "fp16 = fp16 if HAVE else False",
    ],
)
@pytest.mark.parametrize(("base", "stays"), [("Learner", True), ("object", False)])
def test_a_switch_goes_on_guarding_what_stays_with_apex(switch: str, base: str, stays: bool) -> None:
    """Without Apex nothing of it is reached: amp is no name there."""
    result = rewrite(PARTLY.replace("SWITCH", switch).replace("BASE", base))
    assert result.after is not None
    assert "scaler.scale(loss)" in result.after
    assert "found = amp.initialize(" in result.after
    assert (switch in result.after) is stays
    assert ("HAVE = False" in result.after) is stays


def test_a_file_whose_first_import_goes_begins_with_the_next() -> None:
    guard = 'try:\n    from apex import amp\nexcept ImportError as error:\n    warnings.warn(f"no {error}")'
    result = rewrite("import warnings\n\n" + apex(imports=guard).lstrip("\n"))
    assert result.after is not None
    assert not result.after.startswith("\n")
    assert "warnings" not in result.after


ELSEWHERE = """
import torch
from project import args, build, loader

def train(model, optimizer):
    if args.fp16:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).mean()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()

def online(model, optimizer):
    for x in loader:
        loss = model(x).sum()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.online:
    online(model, optimizer)
else:
    train(model, optimizer)
"""


def test_an_import_in_one_function_binds_nothing_in_another() -> None:
    """`online` raised a NameError with Apex, too: its step stays, and it is told; the rest is migrated."""
    result = rewrite(ELSEWHERE)
    assert result.after is not None, result.findings
    train, online = result.after.split("def online")
    assert "scaler.scale(loss).backward()" in train
    assert "from apex import amp" not in result.after
    assert "with amp.scale_loss(loss, optimizer) as scaled_loss:" in online
    assert "        optimizer.step()" in online
    (told,) = [f for f in result.findings if f.status == "manual"]
    assert (told.code, told.line) == ("AMP102", 21)
    assert "imported into train alone" in told.message


def test_an_import_for_the_whole_file_in_a_function_binds_it_everywhere() -> None:
    result = rewrite(
        ELSEWHERE.replace("    if args.fp16:\n        from", "    global amp\n    if args.fp16:\n        from", 1)
    )
    assert not [f for f in result.findings if f.code == "AMP102" and "NameError" in f.message]


def test_a_set_up_whose_loss_is_scaled_by_what_nothing_imports_says_so() -> None:
    source = """
        import torch

        def train(args, model, optimizer, x):
            loss = model(x).mean()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()

        def main(args, x):
            model = torch.nn.Linear(4, 4).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.fp16:
                from apex import amp
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(args, model, optimizer, x)
    """
    result = rewrite(source)
    assert result.after is None
    (told,) = [f.message for f in result.findings if f.code == "AMP116"]
    assert "6 scales a loss for this optimizer by an amp that no import reaches" in told
    imported = rewrite(source.replace("import torch\n", "import torch\n        from apex import amp\n", 1))
    assert imported.after is not None
    assert not [f for f in imported.findings if f.status == "manual"]


def test_a_package_goes_on_offering_what_a_file_of_it_takes_from_torch_now() -> None:
    files = {
        "net/__init__.py": "from .layers import Block\nfrom .layers import LayerNorm\nfrom .tools import amp\n",
        "net/layers.py": """
            import torch
            from apex.normalization import FusedLayerNorm as LayerNorm

            class Block(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = LayerNorm(4)
        """,
        "net/tools.py": "from apex import amp\n\nVERSION = 1\n",
    }
    texts = check_files(files)
    assert texts["net/__init__.py"] == "from .layers import Block\nfrom .layers import LayerNorm\n"
    assert "from torch.nn import LayerNorm\n" in texts["net/layers.py"]
    assert "apex" not in texts["net/tools.py"]


@pytest.mark.parametrize(("star", "told"), [("helpers", True), ("elsewhere", False)])
def test_a_star_import_of_a_file_in_sight_brings_what_that_has(star: str, told: bool) -> None:
    files = {
        "helpers.py": "import torch\n\n\ndef scale(x):\n    return x * 2\n",
        "train.py": f"""
            from {star} import *

            def train(model, optimizer, x):
                loss = model(x).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()

            def main(model, optimizer, x):
                from apex import amp
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                train(model, optimizer, x)
        """,
    }
    result = rewrite_files(files)["train.py"]
    said = [f for f in result.findings if f.code == "AMP102" and "imported into main alone" in f.message]
    assert bool(said) is told
    assert result.after is None or "amp.scale_loss" in result.after


def test_a_flag_that_another_file_asked_for_goes_once_that_is_folded() -> None:
    """Whatever the order of files: `a_base.py` is cleaned before `run.py` is."""
    base = """
        import torch
        try:
            from apex import amp
            APEX = True
        except ImportError:
            APEX = False

        def prepare(model, optimizer, config):
            use_amp = config["amp"] and APEX
            if use_amp:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in torch.randn(2, 3, 4).cuda():
                loss = model(x).mean()
                if use_amp:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
    """
    run = """
        import torch
        from a_base import APEX, amp

        def predict(model, config, x):
            if APEX and config.get("amp"):
                model = amp.initialize(model, opt_level="O1")
            return model(x)
    """
    texts = check_files({"a_base.py": base, "run.py": run})
    assert "APEX" not in texts["a_base.py"]
    assert "a_base" not in texts["run.py"]
    assert "pass" not in texts["run.py"]


def test_a_name_that_is_put_among_the_globals_by_hand_is_said_to_be() -> None:
    source = """
        import torch

        def set_up(model, optimizer):
            from apex import amp
            globals()["amp"] = amp
            return start(model, optimizer)

        def start(model, optimizer):
            return amp.initialize(model, optimizer, opt_level="O1")
    """
    result = rewrite(source)
    (told,) = [f.message for f in result.findings if f.code == "AMP102"]
    assert "line 5 puts it among the globals by hand" in told
    assert "NameError" not in told
    (placed,) = [f.message for f in result.findings if f.code == "AMP116"]
    assert "put among the globals by hand here" in placed
    (other,) = [f.message for f in rewrite(source.replace('["amp"]', "[name]")).findings if f.code == "AMP102"]
    assert "NameError" in other


def test_a_folder_of_scripts_that_is_called_apex_is_not_nvidias() -> None:
    trainer = """
        import torch
        from apex import amp
        from model import build

        def train(loader):
            model = build().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                loss = model(x).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
    """
    files = {
        "apex/mnist/main.py": "from trainer import *\n\nif __name__ == '__main__':\n    train([])\n",
        "apex/mnist/trainer.py": trainer,
        "apex/mnist/model.py": "import torch\n\n\ndef build():\n    return torch.nn.Linear(4, 4)\n",
    }
    texts = check_files(files)
    assert texts["apex/mnist/main.py"] == files["apex/mnist/main.py"]
    assert "apex" not in texts["apex/mnist/trainer.py"]
    assert "scaler.step(optimizer)" in texts["apex/mnist/trainer.py"]


BY_THE_SCRIPT = """
    import json
    import torch

    def train(fp16, model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).mean()
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        return loss.item()

    if __name__ == "__main__":
        for fp16 in (True, False):
            if fp16:
                from apex import amp
            else:
                global amp
                amp = None
            print(json.dumps(train(fp16, torch.nn.Linear(2, 1), [torch.ones(1, 2)])))
"""


def test_a_script_that_imports_it_under_a_test_binds_it_for_the_whole_file(tmp_path: Path) -> None:
    texts = check_files({"train.py": BY_THE_SCRIPT})
    assert "amp." not in texts["train.py"].replace("torch.amp.", "")
    assert "global" not in texts["train.py"]
    assert isinstance(run_files(tmp_path, texts, "train.py"), float)


def test_words_of_a_docstring_that_is_written_anew_use_no_import() -> None:
    source = '''
        import torch

        try:
            import apex
        except ImportError:
            apex = None


        def main(loader, model, optimizer):
            model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                step(model, optimizer, x)


        def step(model, optimizer, x):
            """One step.

            Parameters
            ----------
            model : torch.nn.Module
                What is trained, in a way that apex would know.
            optimizer : torch.optim.Optimizer
                What steps it.
            x : torch.Tensor
                A batch.
            """
            loss = model(x).sum()
            optimizer.zero_grad()
            with apex.amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        '''
    result = rewrite(source)
    assert result.after is not None
    assert "scaler : torch.amp.GradScaler" in result.after  # the docstring tells of it now
    assert "import apex" not in result.after
    assert not [f for f in result.findings if f.status == "manual"]


HAS = """
    import torch
    import torch.nn as nn
    try:
        import apex
        has_apex = True
    except ImportError:
        has_apex = False


    def reset(model, args):
        for layer in model.modules():
            if {test}:
                layer.reset_running_stats()
    """


@pytest.mark.parametrize(
    ("test", "rest"),
    [
        (
            "isinstance(layer, nn.BatchNorm2d) or \\\n"
            "                    (has_apex and isinstance(layer, apex.parallel.SyncBatchNorm))",
            "isinstance(layer, nn.BatchNorm2d) or \\\n                    isinstance(layer, nn.SyncBatchNorm)",
        ),
        (
            "not has_apex or isinstance(layer, apex.parallel.SyncBatchNorm) or args.all",
            "isinstance(layer, nn.SyncBatchNorm) or args.all",
        ),
        (
            "not (has_apex and isinstance(layer, apex.parallel.SyncBatchNorm))",
            "not isinstance(layer, nn.SyncBatchNorm)",
        ),
        (
            "args.all or (has_apex and args.some and isinstance(layer, apex.parallel.SyncBatchNorm))",
            "args.all or (args.some and isinstance(layer, nn.SyncBatchNorm))",
        ),
        (
            "args.all or (has_apex and isinstance(layer, apex.parallel.SyncBatchNorm) == True)",
            "args.all or (isinstance(layer, nn.SyncBatchNorm) == True)",
        ),
    ],
)
def test_a_part_of_a_condition_that_asks_for_apex_keeps_what_was_written_in_its_place(test: str, rest: str) -> None:
    result = rewrite(textwrap.dedent(HAS).replace("{test}", test).lstrip("\n"))
    assert not [f for f in result.findings if f.status == "manual"]
    assert f"        if {rest}:\n" in (result.after or "")
    assert "apex" not in (result.after or "apex")
