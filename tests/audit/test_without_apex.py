"""What a machine without Apex did, it still does."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told
from tests.rules.helpers import rewrite_files


def test_a_probe_that_nothing_answers_any_more() -> None:
    before = """
        import sys
        try:
            from apex import amp
        except ImportError:
            pass

        def main(args):
            if args.fp16 and "apex" not in sys.modules:
                raise RuntimeError("no Apex")
        """
    after = """
        import sys

        def main(args):
            if args.fp16 and "apex" not in sys.modules:
                raise RuntimeError("no Apex")
        """
    assert told(doubts(before, after), "AMP133") == [(8, "refuse")]


def test_a_probe_in_a_program_that_still_imports_apex() -> None:
    before = """
        import sys
        from apex import amp
        from apex.optimizers import FusedAdam

        print("apex" in sys.modules)
        """
    after = """
        import sys
        from apex.optimizers import FusedAdam

        print("apex" in sys.modules)
        """
    assert not told(doubts(before, after), "AMP133")


FALLBACK = """
    import importlib
    import torch

    class Plain(torch.optim.Optimizer):
        pass

    class Quick(torch.optim.Optimizer):
        def __init__(self, params):
            self.kernel = importlib.import_module("quick_adam_cuda")

    def build(params):
        try:
            from apex.optimizers import FusedAdam as _Fused
            optimizer = Quick(params)
        except ImportError:
            optimizer = Plain(params)
        return optimizer
    """


def test_a_fallback_that_gives_way_to_compiled_code() -> None:
    after = FALLBACK.replace(
        """        try:
            from apex.optimizers import FusedAdam as _Fused
            optimizer = Quick(params)
        except ImportError:
            optimizer = Plain(params)
""",
        "        optimizer = Quick(params)\n",
    )
    assert after != FALLBACK
    assert told(doubts(FALLBACK, after), "AMP133") == [(16, "refuse")]


def test_a_fallback_that_stays() -> None:
    after = FALLBACK.replace(
        """        try:
            from apex.optimizers import FusedAdam as _Fused
            optimizer = Quick(params)
        except ImportError:
            optimizer = Plain(params)
""",
        "        optimizer = Plain(params)\n",
    )
    assert not told(doubts(FALLBACK, after), "AMP133")


def test_a_flag_whose_other_branch_is_torchs_own() -> None:
    before = """
        import torch
        try:
            from apex.normalization import FusedLayerNorm
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def norm(size):
            if HAS_APEX:
                return FusedLayerNorm(size)
            return torch.nn.LayerNorm(size)
        """
    after = """
        import torch

        def norm(size):
            return torch.nn.LayerNorm(size)
        """
    assert not told(doubts(before, after), "AMP133")


def test_a_flag_whose_other_branch_was_another_class() -> None:
    before = """
        import torch
        try:
            from apex.normalization import FusedLayerNorm

            class Norm(FusedLayerNorm):
                @torch.jit.unused
                def forward(self, x):
                    return super().forward(x)

            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def norm(size):
            if HAS_APEX:
                return Norm(size)
            return torch.nn.LayerNorm(size)
        """
    after = """
        import torch

        class Norm(torch.nn.LayerNorm):
            @torch.jit.unused
            def forward(self, x):
                return super().forward(x)

        def norm(size):
            return Norm(size)
        """
    assert told(doubts(before, after), "AMP133") == [(17, "look")]
    scripting = "\n        traced = torch.jit.script(norm(3))\n        "
    assert told(doubts(before + scripting, after + scripting), "AMP133") == [(17, "refuse")]
    decorated = """
        def half_of(x: torch.Tensor) -> torch.Tensor:
            return x / 2

        @torch.jit.script
        def quarter_of(x: torch.Tensor) -> torch.Tensor:
            return half_of(half_of(x))

        """
    assert told(doubts(before + decorated, after + decorated), "AMP133") == [(17, "look")]
    called = decorated + "from torch.jit import script as compiled\n\n        eighth_of = compiled(half_of)\n        "
    assert told(doubts(before + called, after + called), "AMP133") == [(17, "look")]
    naming = decorated.replace("half_of(half_of(x))", "norm(3)(x)")
    assert told(doubts(before + naming, after + naming), "AMP133") == [(17, "refuse")]
    aside = decorated + "script = torch.jit.script\n        "
    assert told(doubts(before + aside, after + aside), "AMP133") == [(17, "refuse")]


def test_a_flag_that_a_test_no_longer_asks_for() -> None:
    before = """
        import torch
        try:
            from apex.normalization import FusedLayerNorm as _Fused
            has_fused = True

            class Norm(_Fused):
                @torch.jit.unused
                def forward(self, x):
                    return super().forward(x) if x.is_cuda else x
        except ImportError:
            has_fused = False

        def norm(size):
            if torch.cuda.is_available() and has_fused:
                return Norm(size)
            return torch.nn.LayerNorm(size)
        """
    after = """
        import torch

        class Norm(torch.nn.LayerNorm):
            @torch.jit.unused
            def forward(self, x):
                return super().forward(x) if x.is_cuda else x

        def norm(size):
            if torch.cuda.is_available():
                return Norm(size)
            return torch.nn.LayerNorm(size)
        """
    assert told(doubts(before, after), "AMP133") == [(16, "look")]
    other = after.replace("(torch.nn.LayerNorm)", "(torch.nn.RMSNorm)")
    assert told(doubts(before, other), "AMP133") == [(16, "review")]


def test_a_fallback_that_nothing_leads_to_any_more() -> None:
    before = """
        try:
            from apex.normalization import FusedLayerNorm

            Norm = FusedLayerNorm
        except ImportError:
            from layers import WrappedNorm

            Norm = WrappedNorm
        """
    after = """
        from torch import nn

        try:
            Norm = nn.LayerNorm
        except ImportError:
            from layers import WrappedNorm

            Norm = WrappedNorm
        """
    assert [v for _, v in told(doubts(before, after), "AMP133")] == ["look"]


def test_a_part_that_everybody_has_now() -> None:
    before = """
        try:
            from apex.parallel import convert_syncbn_model
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def wrap(model):
            if HAS_APEX:
                model = convert_syncbn_model(model)
            return model
        """
    after = """
        import torch

        def wrap(model):
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return model
        """
    assert told(doubts(before, after), "AMP133") == [(9, "look")]
    told_only = before.replace(
        "model = convert_syncbn_model(model)",
        "model = convert_syncbn_model(model)\n            else:\n                print('no apex')",
    )
    assert told(doubts(told_only, after), "AMP133") == [(9, "look")]
    plain = told_only.replace("print('no apex')", "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)")
    assert not told(doubts(plain.replace("        try:", "        import torch\n        try:", 1), after), "AMP133")


@pytest.mark.parametrize("missing", ["not HAS", "HAS is False", "HAS == False", "HAS is not True"])
def test_a_switch_that_is_turned_off_by_what_says_that_apex_is_missing(missing: str) -> None:
    before = f"""
        try:
            from apex import amp
            HAS = True
        except ImportError:
            HAS = False

        def main(args, model):
            if args.fp16 and {missing}:
                print("not installed")
                args.fp16 = False
            return Trainer(fp16=args.fp16)
        """
    after = """
        def main(args, model):
            return Trainer(fp16=args.fp16)
        """
    assert told(doubts(before, after), "AMP133") == [(10, "look")]


SWITCHED_OFF = """
    import torch
    {guard}

    def main(args, model, optimizer, loader):
        {set_up}
        for x in loader:
            with torch.autocast("cuda", enabled=args.level != "O0"):
                loss = model(x)
"""


def test_a_switch_that_was_turned_off_for_want_of_apex() -> None:
    guard = "try:\n        from apex import amp\n    except ImportError:\n        amp = None"
    set_up = """if args.level != "O0":
            if amp is None:
                print("ignored")
                args.level = "O0"
            else:
                model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)"""
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=args.level != "O0")'
    found = doubts(SWITCHED_OFF.format(guard=guard, set_up=set_up), SWITCHED_OFF.format(guard="", set_up=scaler))
    assert told(found, "AMP133") == [(11, "look")]
    assert any("args.level = 'O0'" in d.message for d in found)


def test_a_flag_of_apex_itself_may_go_with_it() -> None:
    guard = "try:\n        from apex import amp\n        HAS = True\n    except ImportError:\n        HAS = False"
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=args.level != "O0")\n        print(HAS)'
    after = SWITCHED_OFF.format(guard="HAS = True", set_up=scaler)
    found = doubts(SWITCHED_OFF.format(guard=guard, set_up="print(HAS)"), after)
    (doubt,) = [d for d in found if d.code == "AMP133"]
    assert doubt.verdict == "look"
    assert "True on every machine" in doubt.message


@pytest.mark.parametrize(
    ("computed", "now", "expected"),
    [
        ("args.fp16 and HAS and args.cuda", "args.fp16 and args.cuda", [(9, "look")]),
        ("bool(args.fp16 and HAS)", "bool(args.fp16)", [(9, "look")]),
        ("args.fp16 and HAS", "args.fp16 and HAS", []),  # the flag is asked still
        ("args.fp16 or HAS", "args.fp16 or True", []),  # on without Apex, too
        ("args.fp16 and args.cuda", "args.fp16 and args.cuda", []),
    ],
)
def test_a_switch_that_was_computed_from_whether_apex_is_there(
    computed: str, now: str, expected: list[tuple[int, str]]
) -> None:
    program = """
        import torch
        {guard}

        def main(args, model, optimizer, loader):
            args.fp16 = {switch}
            {set_up}
            for x in loader:
                with torch.autocast("cuda", enabled=args.fp16):
                    loss = model(x)
        """
    guard = "try:\n            from apex import amp\n            HAS = True\n        except ImportError:\n            HAS = False"
    set_up = "if args.fp16:\n                model, optimizer = amp.initialize(model, optimizer)"
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)'
    before = program.format(guard=guard, switch=computed, set_up=set_up)
    asked = guard.replace("from apex import amp", "import apex.optimizers")
    after = program.format(guard=asked if "HAS" in now else "", switch=now, set_up=scaler)
    assert told(doubts(before, after), "AMP133") == expected
    if "HAS" in now:  # where it is always true, it asks nothing any more
        assert told(doubts(before, after.replace(asked, "HAS = True")), "AMP133") == [(9, "look")]


SET_UP = """
    import torch
    {guard}

    def main(args, model, opt, loader):
        {switch}
        for x in loader:
            {step}
"""
GUARD = "try:\n        from apex import amp\n        HAS = True\n    except ImportError:\n        HAS = False"
NATIVE = """with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()"""


def set_up(switch: str, on: str, now: str = "") -> list[tuple[int, str]]:
    """A program that sets Apex up in `switch` and scales where `on`, and its migration with `now` before the scaler."""
    step = f"""loss = model(x).sum()
            if {on}:
                with amp.scale_loss(loss, opt) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            opt.step()"""
    scaler = f'{now}scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)'
    before = SET_UP.format(guard=GUARD, switch=switch, step=step)
    return told(doubts(before, SET_UP.format(guard="", switch=scaler, step=NATIVE)), "AMP133")


INITIALIZE = "model, opt = amp.initialize(model, opt)"


@pytest.mark.parametrize(
    ("switch", "on", "line"),
    [
        (f"if args.fp16 and HAS:\n            {INITIALIZE}", "args.fp16 and HAS", 9),
        (f"if args.fp16:\n            if HAS:\n                {INITIALIZE}", "args.fp16 and HAS", 10),
        (
            "use = None\n        if args.fp16 and HAS:\n            use = 'apex'\n        elif args.fp16:\n            print(0)\n"
            f"        if use == 'apex':\n            {INITIALIZE}",
            "use == 'apex'",
            10,
        ),
        (f"use = args.fp16 if HAS else False\n        if use:\n            {INITIALIZE}", "use", 9),
        (
            f"use = args.fp16\n        use = use and HAS\n        if use and args.cuda:\n            {INITIALIZE}",
            "use",
            10,
        ),
    ],
)
def test_a_set_up_that_a_machine_without_apex_passed_by(switch: str, on: str, line: int) -> None:
    """It warned, or said nothing, and trained in float32: it trains in mixed precision now."""
    assert set_up(switch, on) == [(line, "look")]


@pytest.mark.parametrize(
    "switch",
    [
        f"if args.fp16:\n            {INITIALIZE}",  # it fails without Apex
        f"if args.amp and HAS:\n            args.fp16 = True\n        if args.fp16:\n            {INITIALIZE}",  # or asked for itself
        f"if args.fp16 and not HAS:\n            raise RuntimeError\n        if args.fp16 and HAS:\n            {INITIALIZE}",
        f"assert HAS or not args.fp16\n        if args.fp16 and HAS:\n            {INITIALIZE}",
        f"if args.fp16 and not HAS:\n            parser.error('no')\n        if args.fp16 and HAS:\n            {INITIALIZE}",
    ],
)
def test_a_program_that_ends_for_want_of_apex(switch: str) -> None:
    assert set_up(switch, "args.fp16") == []


@pytest.mark.parametrize(
    ("otherwise", "expected"), [("else", []), ("elif HAVE", []), ("elif args.native", [(10, "look")])]
)
def test_a_program_that_had_torchs_own_for_want_of_apex(otherwise: str, expected: list[tuple[int, str]]) -> None:
    """With nothing more asked for, a machine without Apex trained in mixed precision as well."""
    switch = f"""use = None
        if args.fp16 and HAS:
            use = "apex"
        {otherwise}:
            use = "native"
        if use == "apex":
            {INITIALIZE}"""
    assert set_up(switch, "use == 'apex'") == expected


FLAG = """
    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        amp = None
        HAS_APEX = False
"""


@pytest.mark.parametrize(
    ("imports", "flag", "amp"),
    [
        ("from compat import HAS_APEX, amp", "HAS_APEX", "amp"),
        ("from compat import HAS_APEX as found, amp", "found", "amp"),
        ("import compat", "compat.HAS_APEX", "compat.amp"),
        ("from compat import *", "HAS_APEX", "amp"),
        ("from pkg import HAS_APEX, amp", "HAS_APEX", "amp"),
        ("from compat import amp", "amp", "amp"),
        ("from compat import amp", "amp is not None", "amp"),
    ],
)
def test_a_flag_of_another_file_that_passed_by_the_set_up(imports: str, flag: str, amp: str) -> None:
    before = f"""
        import torch
        {imports}

        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if {flag}:
            model, optimizer = {amp}.initialize(model, optimizer)
        for x in data:
            loss = model(x).sum()
            if {flag}:
                with {amp}.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        """
    after = """
        import torch

        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """
    files = {"train.py": before, "compat.py": FLAG, "pkg/__init__.py": "from compat import *\n"}
    found = doubts_of(files, {"train.py": after, "compat.py": ""})
    assert told(found, "AMP133") == [(6, "look")]
    assert "passed by the set-up here" in next(d.message for d in found if d.code == "AMP133")
    assert not told(found, "AMP531")  # runs are compared where Apex is installed
    compat = "from apex import amp\nHAS_APEX = found = bool(input())\n"  # which asks for something else
    assert not told(doubts_of({**files, "compat.py": compat}, {"train.py": after}), "AMP133")


MADE = """
import torch

try:
    from apex import amp

    THERE = True
except ImportError:
    THERE = False


def make(model, fp16=GIVEN):
    if fp16 and THERE is False:
        fp16 = False
    return Learner(model, fp16)


class Learner:
    def __init__(self, model, fp16):
        self.optimizer = torch.optim.Adam(model.parameters())
        self.model, self.optimizer = amp.initialize(model, self.optimizer, enabled=fp16)
"""


@pytest.mark.parametrize(("given", "verdict"), [("True", "review"), ("False", "look"), ("", "look")])
def test_mixed_precision_that_only_the_want_of_apex_switched_off(given: str, verdict: str) -> None:
    before = MADE.replace("=GIVEN", f"={given}" if given else "")
    after = before[: before.index("try:")] + before[before.index("def make") :].replace(
        "    if fp16 and THERE is False:\n        fp16 = False\n", ""
    )
    kept = "        self.model, self.optimizer = amp.initialize(model, self.optimizer, enabled=fp16)\n"
    after = after.replace(kept, '        self.model, self.scaler = model, torch.amp.GradScaler("cuda", enabled=fp16)\n')
    (doubt,) = [d for d in doubts(before, after) if d.construct == "fp16"]
    assert doubt.verdict == verdict
    assert ("which is the default, also without CUDA: torch warns there" in doubt.message) is (verdict == "review")


TEACHER = """
    import torch
    mixed_precision = True
    try:
        from apex import amp
    except ImportError:
        print("no Apex")
        mixed_precision = False

    def train(model, teacher, optimizer, loader):
        if not mixed_precision:
            teacher.eval()
            print("in float32")
        if mixed_precision:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            loss = (model(x) - teacher(x)).mean()
            if mixed_precision:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
    """
TEACHER_NOW = """
    import torch

    def train(model, teacher, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = (model(x) - teacher(x)).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """


def test_what_a_branch_for_want_of_apex_did_besides() -> None:
    found = [d for d in doubts(TEACHER, TEACHER_NOW) if "more than precision" in d.message]
    assert [(d.line, d.code, d.verdict) for d in found] == [(11, "AMP133", "review")]
    assert "teacher.eval()" in found[0].message
    kept = TEACHER_NOW.replace("        scaler = ", "        teacher.eval()\n        scaler = ")
    assert "more than precision" not in str(doubts(TEACHER, kept))
    other = TEACHER_NOW + "\n    def serve(teacher):\n        teacher.eval()\n"
    assert "more than precision" in str(doubts(TEACHER, other))
    for telling in ("self.logger('teacher')", "log('teacher')", "logger.info('teacher')"):
        assert "more than precision" not in str(doubts(TEACHER.replace("teacher.eval()", telling), TEACHER_NOW))
    leaving = TEACHER.replace('print("in float32")', "return None")
    assert "more than precision" not in str(doubts(leaving, TEACHER_NOW))


NORM = """
import torch
try:
    from apex.normalization import FusedLayerNorm as Norm
except ImportError:
    class Norm(torch.nn.Module):
        def __init__(self, size, eps=1e-12):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(size))
            self.eps = eps

layer = {made}
"""


def test_the_constant_that_a_layer_has_unless_it_is_told_another() -> None:
    for made, other in (("Norm(4)", True), ("Norm(4, eps=1e-6)", False), ("Norm(4, 1e-6)", False)):
        after = f"import torch\nfrom torch.nn import LayerNorm as Norm\n\nlayer = {made}\n"
        (doubt,) = [d for d in doubts(NORM.format(made=made), after) if d.code == "AMP133"]
        assert ("whose eps is 1e-05 where none is given, not 1e-12" in doubt.message) is other


KEPT_IF = """
    import torch

    if settings["mixed"]:
        try:
            from apex import amp
        except ImportError:
            settings["mixed"] = False

    def train(model, optimizer, loader):
        if settings["mixed"]:
            both = amp.initialize(model, optimizer, opt_level="O1")
            model, optimizer = both
        for x in loader:
            with amp.scale_loss(model(x).sum(), optimizer) as scaled:
                scaled.backward()
            optimizer.step()
    """


def test_a_test_that_stays_tells_nothing_of_apex_once_nothing_sets_its_flag() -> None:
    after = """
    import torch

    def train(model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda", enabled=bool(settings["mixed"]))
        if settings["mixed"]:
            both = model, optimizer
            model, optimizer = both
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=bool(settings["mixed"])):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """
    found = [d for d in doubts(KEPT_IF, after) if d.code == "AMP133"]
    assert [d.line for d in found if "passed by the set-up here" in d.message] == [10]


PASSED_BY = """
import torch
HEAD
try:
    from apex import amp
    THERE = True
except ImportError:
    THERE = False
from data import model, optimizer, loader

if THERE:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if THERE:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("head", "other", "said"),
    [
        ("", "", True),
        ("import apex", "", False),
        ("from apex.parallel import Reducer", "", False),
        ("from parts import join", "import apex\njoin = apex.parallel.Reducer\n", False),
        ("from parts import join", "try:\n    import apex\nexcept ImportError:\n    pass\njoin = 1\n", True),
    ],
)
def test_a_program_that_imports_apex_under_no_condition_did_nothing_without_it(
    head: str, other: str, said: bool
) -> None:
    files = {"train.py": PASSED_BY.replace("HEAD", head)} | ({"parts.py": other} if other else {})
    found = rewrite_files(files)["train.py"]
    assert any(f.code == "AMP133" and "passed by" in f.message for f in found.findings) is said


ANSWER = """
    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        HAS_APEX = False

    READ
    """


@pytest.mark.parametrize(
    ("read", "now", "said"),
    [
        ("def available():\n        return HAS_APEX", "HAS_APEX = True", [(1, "look")]),
        ("def available():\n        return HAS_APEX", "HAS_APEX = False", []),
        ("def available():\n        return False", "HAS_APEX = True", []),
    ],
)
def test_a_flag_that_says_apex_is_there_on_every_machine_now(read: str, now: str, said: list[tuple[int, str]]) -> None:
    before = ANSWER.replace("READ", read)
    after = f"\n    {now}\n\n    {read}\n"
    assert [v for _, v in told(doubts(before, after), "AMP133")] == [v for _, v in said]


@pytest.mark.parametrize(
    ("found", "told_of"),
    [
        ("find_spec('apex') is not None", True),
        ("bool(find_spec('apex'))", True),
        ("find_spec('faiss') is not None", False),
        ("find_spec('apex')(args)", False),
    ],
)
def test_a_flag_that_looks_apex_up_switched_mixed_precision_off(found: str, told_of: bool) -> None:
    before = f"""
        import torch
        from importlib.util import find_spec
        has_apex = {found}

        def train(args, model, optimizer, loader):
            args.fp16 = args.fp16 and has_apex
            if args.fp16:
                from apex import amp
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                loss = model(x)
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        """
    after = """
        import torch

        def train(args, model, optimizer, loader):
            args.fp16 = args.fp16
            scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
            for x in loader:
                with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    said = [d.message for d in doubts(before, after) if d.code == "AMP133"]
    assert any("trains in mixed precision now" in line for line in said) is told_of


PICKED = PASSED_BY.replace(
    "if THERE:\n    model,",
    """if NAME == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
elif ASKED:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
else:
    raise ValueError(NAME)
if THERE:
    model,""",
    1,
)


@pytest.mark.parametrize(
    ("picked", "said"),
    [
        (PICKED.replace("ASKED", 'THERE and NAME == "fused"'), True),
        (
            PASSED_BY.replace("if THERE:\n    model,", "if not THERE:\n    raise SystemExit\nif THERE:\n    model,", 1),
            False,
        ),
        (
            PASSED_BY.replace(
                "if THERE:\n    model,",
                "if not MIXED:\n    pass\nelif not THERE:\n    raise SystemExit\nif THERE and MIXED:\n    model,",
                1,
            ),
            False,
        ),
    ],
)
def test_what_ends_only_for_want_of_another_part_of_apex_ends_no_run(picked: str, said: bool) -> None:
    head = "from settings import MIXED, NAME"
    found = rewrite_files({"train.py": picked.replace("HEAD", head)})["train.py"]
    assert found.after is not None
    assert any(f.code == "AMP133" and "passed by" in f.message for f in found.findings) is said


CHOSEN = """
    from torch import nn

    def wrap(conf, model):
        if conf.level:
            from apex.parallel import DistributedDataParallel as DDP
        else:
            from torch.nn.parallel import DistributedDataParallel as Torchs
            DDP = lambda model: Torchs(model, find_unused_parameters=conf.unused)
        return DDP(model)
    """
LEFT = """
    from torch import nn

    def wrap(conf, model):
        if not conf.level:
            from torch.nn.parallel import DistributedDataParallel as Torchs
            DDP = lambda model: Torchs(model, find_unused_parameters=conf.unused)
        return nn.parallel.DistributedDataParallel(model)
    """


def test_a_function_of_the_other_branch_that_nothing_reads_any_more() -> None:
    assert told(doubts(CHOSEN, LEFT), "AMP133") == [(8, "review")]
    read = LEFT.replace("return nn.parallel.DistributedDataParallel(model)", "return DDP(model)")
    assert not told(doubts(CHOSEN, read), "AMP133")


def test_what_the_other_branch_imports_under_another_name() -> None:
    lambdas = "DDP = lambda model: Torchs(model, find_unused_parameters=conf.unused)"
    assert not told(doubts(CHOSEN.replace(lambdas, "DDP = Torchs"), LEFT.replace(lambdas, "DDP = Torchs")), "AMP133")


def test_a_function_that_stood_in_where_apex_was_missing() -> None:
    before = """
        from torch import nn

        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            DDP = lambda model: nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)

        def wrap(model):
            return DDP(model)
        """
    after = """
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model)
        """
    assert told(doubts(before, after), "AMP133") == [(6, "look")]


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("model = network_to_half(model)", "went on in half (`network_to_half(model)`)"),
        ("model.half()", "went on in half (`model.half()`)"),
        ("print('float32')", "went on without mixed precision"),
    ],
)
def test_what_a_machine_without_apex_went_on_with(instead: str, said: str) -> None:
    before = f"""
        import torch
        from convert import network_to_half
        try:
            from apex import amp
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def prepare(model, optimizer):
            if HAS_APEX:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            else:
                {instead}
            return model, optimizer
        """
    after = """
        import torch

        def prepare(model, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            return model, optimizer
        """
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP133" and "passed by the set-up" in d.message]
    assert said in doubt.message
