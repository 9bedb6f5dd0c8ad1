"""What is saved is what is loaded."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told
from tests.rules.helpers import rewrite_files

BEFORE = """
    import torch
    from apex import amp

    def main(model, optimizer, path):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        checkpoint = torch.load(path)
        amp.load_state_dict(checkpoint["amp"])
        torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)
    """
AFTER = """
    import torch

    def main(model, optimizer, path):
        scaler = torch.amp.GradScaler("cuda")
        checkpoint = torch.load(path)
        if "scaler" in checkpoint:
            scaler.load_state_dict(checkpoint["scaler"])
        torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)
    """


def test_a_right_migration() -> None:
    assert not told(doubts(BEFORE, AFTER), "AMP431")


def test_a_key_that_nothing_writes() -> None:
    after = AFTER.replace('checkpoint["scaler"]', 'checkpoint["scaler_state"]')
    (found,) = [d for d in doubts(BEFORE, after) if d.code == "AMP431"]
    assert (found.line, found.verdict, found.construct) == (7, "refuse", "load_state_dict")
    twice = after.rstrip() + '\n        torch.save({"first": scaler.state_dict()}, "first.pt")\n'
    (found,) = [d for d in doubts(BEFORE, twice) if d.code == "AMP431"]
    assert 'saves it under "first" or "scaler":' in found.message


def test_a_key_that_old_files_have() -> None:
    """Converted ones hold a scaler's state there: the load is right for them, and for nothing that is saved now."""
    after = AFTER.replace('if "scaler" in checkpoint:', "if path:").replace('checkpoint["scaler"]', 'checkpoint["amp"]')
    assert told(doubts(BEFORE, after), "AMP431") == [(7, "review")]


def test_a_dictionary_that_is_called_for() -> None:
    saved = "dict(model=model.state_dict(), scaler=scaler.state_dict())"
    after = AFTER.replace('{"model": model.state_dict(), "scaler": scaler.state_dict()}', saved)
    assert not told(doubts(BEFORE, after), "AMP431")
    after = after.replace('checkpoint["scaler"]', 'checkpoint["scaler_state"]')
    assert told(doubts(BEFORE, after), "AMP431") == [(7, "refuse")]


def test_a_state_that_is_saved_no_more() -> None:
    after = AFTER.replace(', "scaler": scaler.state_dict()', "")
    assert told(doubts(BEFORE, after), "AMP431") == [(8, "refuse")]


def test_a_state_that_is_only_logged() -> None:
    before = """
        from apex import amp
        import torch

        def main(model, optimizer):
            model, optimizer = amp.initialize(model, optimizer)
            print(amp.state_dict()["loss_scaler0"]["loss_scale"])
        """
    after = """
        import torch

        def main(model, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            print(scaler.get_scale())
        """
    assert not told(doubts(before, after), "AMP431")


ADAM = """
    import torch
    from apex.optimizers import FusedAdam

    def main(model, path):
        optimizer = FusedAdam(model.parameters(), lr=0.1)
        optimizer.load_state_dict(torch.load(path)["optimizer"])
    """


def test_the_state_of_an_optimizer_of_another_class() -> None:
    after = ADAM.replace("    from apex.optimizers import FusedAdam\n", "").replace(
        "FusedAdam(model.parameters(), lr=0.1)", "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)"
    )
    (found,) = [d for d in doubts(ADAM, after) if d.code == "AMP431"]
    assert (found.line, found.verdict, found.construct) == (5, "review", "FusedAdam")
    assert not told(doubts(ADAM, ADAM.replace("import torch\n", "import torch\n    import math\n")), "AMP431")
    assert not told(doubts(ADAM, ADAM.replace('["optimizer"]', '["opt"]')), "AMP431")


def test_an_optimizer_whose_state_is_never_loaded() -> None:
    before = ADAM.replace('        optimizer.load_state_dict(torch.load(path)["optimizer"])\n', "")
    after = before.replace("    from apex.optimizers import FusedAdam\n", "").replace(
        "FusedAdam(model.parameters(), lr=0.1)", "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)"
    )
    assert not told(doubts(before, after), "AMP431")


HELPER = """
    import torch
    from apex import amp

    def save(model, path, amp_state=None):
        state = {"model": model.state_dict()}
        if amp_state:
            state["amp"] = amp_state
        torch.save(state, path)

    def save_best(model, path, **more):
        save(model, path, **more)

    def main(model, optimizer, path):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        checkpoint = torch.load(path)
        amp.load_state_dict(checkpoint["amp"])
        save(model, path, amp_state=amp.state_dict())
    """


@pytest.mark.parametrize("through", ["save(", "save_best("])
def test_a_key_that_a_helper_writes(through: str) -> None:
    program = HELPER.replace("        save(model, path, amp", f"        {through}model, path, amp")
    after = program.replace("    from apex import amp\n", "").replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', 'scaler = torch.amp.GradScaler("cuda")'
    )
    after = after.replace("amp.state_dict()", "scaler.state_dict()")
    kept = after.replace('amp.load_state_dict(checkpoint["amp"])', 'scaler.load_state_dict(checkpoint["amp"])')
    assert not told(doubts(program, kept), "AMP431")
    other = after.replace('amp.load_state_dict(checkpoint["amp"])', 'scaler.load_state_dict(checkpoint["scaler"])')
    assert told(doubts(program, other), "AMP431") == [(16, "refuse")]


@pytest.mark.parametrize(
    "test", ['"amp" in checkpoint', 'not ("amp" not in checkpoint.keys())', 'checkpoint.get("amp")']
)
def test_a_test_for_the_key_that_nothing_writes_any_more(test: str) -> None:
    after = AFTER.replace('"scaler" in checkpoint:', f"{test}:")
    assert told(doubts(BEFORE, after), "AMP431") == [(6, "refuse")]


def test_a_test_for_either_key() -> None:
    after = AFTER.replace('"scaler" in checkpoint:', '"scaler" in checkpoint or "amp" in checkpoint:')
    assert not told(doubts(BEFORE, after), "AMP431")


def test_a_key_that_a_variable_is_put_under() -> None:
    before = BEFORE.replace('torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)', "STATE")
    before = before.replace("STATE", 'state = amp.state_dict()\n        torch.save({"amp": state}, path)')
    after = AFTER.replace('torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)', "STATE")
    lost = after.replace("STATE", 'state = scaler.state_dict()\n        torch.save({"amp": state}, path)')
    assert told(doubts(before, lost), "AMP431") == [(7, "refuse")]
    turned = lost.replace("torch.save", "other = state\n        state = other\n        torch.save")
    assert told(doubts(before, turned), "AMP431") == [(7, "refuse")]  # through two variables, round and round
    kept = after.replace("STATE", 'state = scaler.state_dict()\n        torch.save({"scaler": state}, path)')
    assert not told(doubts(before, kept), "AMP431")


def test_keys_that_never_fitted() -> None:
    before = BEFORE.replace('"amp": amp.state_dict()', '"amp_state": amp.state_dict()')
    after = AFTER.replace('"scaler": scaler.state_dict()', '"scaler_state": scaler.state_dict()')
    assert not told(doubts(before, after), "AMP431")


LOST = AFTER.replace(', "scaler": scaler.state_dict()', "").replace(
    '        if "scaler" in checkpoint:\n            scaler.load_state_dict(checkpoint["scaler"])\n', ""
)


def test_a_state_that_is_neither_saved_nor_loaded_any_more() -> None:
    assert told(doubts(BEFORE, LOST), "AMP431") == [(7, "refuse"), (8, "refuse")]


TWO_WAYS = """
    import torch
    from apex import amp

    def train(model, optimizer, loader):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

    def test(model, optimizer, loader, path):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        amp.load_state_dict(torch.load(path)["amp"])
        return [model(x) for x in loader]

    if __name__ == "__main__":
        from project import model, optimizer, loader, args
        {run}
    """
TWO_WAYS_NOW = """
    import torch

    def train(model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    def test(model, optimizer, loader, path):
        with torch.autocast("cuda", dtype=torch.float16):
            return [model(x) for x in loader]

    if __name__ == "__main__":
        from project import model, optimizer, loader, args
        {run}
    """
TRAIN, TEST = "train(model, optimizer, loader)", "test(model, optimizer, loader, args.path)"


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (f"train(model, optimizer, loader) if args.train else {TEST}", []),
        (f"{TRAIN}\n        {TEST}", []),
        (f"{TEST}\n        {TRAIN}", ["refuse"]),
        (f"for _ in range(3):\n            {TRAIN}\n            {TEST}", ["refuse"]),
        ("args.run(train, test)", ["refuse"]),
    ],
    ids=["either", "tested at the end", "tested first", "in turn", "out of sight"],
)
def test_a_scale_that_is_loaded_where_no_loss_is_scaled_after_it_may_go(run: str, wanted: list[str]) -> None:
    found = told(doubts(TWO_WAYS.format(run=run), TWO_WAYS_NOW.format(run=run)), "AMP431")
    assert [verdict for _, verdict in found] == wanted


@pytest.mark.parametrize(
    ("run", "wanted"), [(f"{TRAIN}\n        {TEST}", []), (f"{TEST}\n        {TRAIN}", ["refuse"])]
)
def test_a_loss_that_the_optimizer_itself_scales_is_scaled(run: str, wanted: list[str]) -> None:
    before = TWO_WAYS.replace("amp.scale_loss(model(x).sum(), optimizer)", "optimizer.scale_loss(model(x).sum())")
    found = told(doubts(before.format(run=run), TWO_WAYS_NOW.format(run=run)), "AMP431")
    assert [verdict for _, verdict in found] == wanted


@pytest.mark.parametrize("maker", ["torch.cuda.amp.GradScaler()", "torch.amp.grad_scaler.GradScaler()"])
def test_a_scaler_by_its_other_names_has_a_state_to_lose(maker: str) -> None:
    assert told(doubts(BEFORE, LOST.replace('torch.amp.GradScaler("cuda")', maker)), "AMP431")


def test_without_a_scaler_there_is_no_state_to_lose() -> None:
    assert not told(doubts(BEFORE, LOST.replace('torch.amp.GradScaler("cuda")', "None")), "AMP431")
    assert not told(doubts(BEFORE, LOST, dtype="bfloat16"), "AMP431")


def test_a_state_that_apex_still_saves() -> None:
    stays = BEFORE.replace("amp.initialize(model, optimizer, opt_level=", "amp.initialize(model, optimizer, O=")
    after = stays.replace("O=", "enabled=True, opt_level=") + "    scaler = torch.amp.GradScaler()\n"
    assert not told(doubts(stays, after), "AMP431")


def test_a_scaler_that_comes_from_elsewhere_is_told_by_its_name() -> None:
    after = AFTER.replace('        scaler = torch.amp.GradScaler("cuda")\n', "").replace(
        "optimizer, path", "scaler, path"
    )
    made = "\n    other = torch.amp.GradScaler()\n"
    assert not told(doubts(BEFORE, after + made), "AMP431")
    unnamed = (after + made).replace("scaler.", "loss_scale.").replace("scaler, path", "loss_scale, path")
    assert told(doubts(BEFORE, unnamed), "AMP431") == [(7, "refuse"), (8, "refuse")]


def test_a_test_inside_of_another_one_is_told_once() -> None:
    after = AFTER.replace(
        '        if "scaler" in checkpoint:\n            scaler.load_state_dict(checkpoint["scaler"])',
        '        if "amp" in checkpoint:\n            if checkpoint["amp"]:\n'
        '                scaler.load_state_dict(checkpoint["scaler"])',
    )
    assert len(told(doubts(BEFORE, after), "AMP431")) == 1


def test_what_another_file_loads_says_nothing_of_a_key() -> None:
    """In this file the key that is loaded is the one that was saved: that another one never fitted excuses nothing."""
    after = AFTER.replace('checkpoint["scaler"]', 'checkpoint["scaler_state"]')
    other = 'from apex import amp\n\namp.load_state_dict(torch.load("x")["never"])\n'
    found = doubts_of({"train.py": BEFORE, "other.py": other}, {"train.py": after})
    assert [(d.line, d.verdict) for d in found if d.code == "AMP431" and d.path == "train.py"] == [(7, "refuse")]


@pytest.mark.parametrize(
    ("collects", "known"),
    [("state.update(more)", True), ("state.keep(more)", False), ("state.update(other)", False)],
)
def test_a_key_that_a_helper_collects(collects: str, known: bool) -> None:
    before = f"""
    import torch
    from apex import amp

    def save(model, path, **more):
        state = {{"model": model.state_dict()}}
        {collects}
        torch.save(state, path)

    def main(model, optimizer, path):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        amp.load_state_dict(torch.load(path)["amp"])
        save(model, path, amp=amp.state_dict())
    """
    after = before.replace("    from apex import amp\n", "").replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "scaler = torch.amp.GradScaler()"
    )
    after = after.replace("amp=amp.state_dict()", "amp=scaler.state_dict()")
    after = after.replace(
        'amp.load_state_dict(torch.load(path)["amp"])', 'scaler.load_state_dict(torch.load(path)["other"])'
    )
    found = [d for d in doubts(before, after) if d.code == "AMP431"]
    assert bool(found) is known


def test_the_load_that_is_named_is_the_nearest_one() -> None:
    more = '        optimizer.load_state_dict(torch.load(path)["optimizer"])\n'
    before = ADAM.replace(more, more * 3)
    after = before.replace("    from apex.optimizers import FusedAdam\n", "").replace(
        "FusedAdam(model.parameters(), lr=0.1)", "torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)"
    )
    (found,) = [d for d in doubts(before, after) if d.code == "AMP431"]
    assert "(train.py:6)" in found.message


OUT_OF_SIGHT = """
import torch
from apex import amp
from helpers import save_checkpoint

def main(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        with amp.scale_loss(model(x).mean(), optimizer) as loss:
            loss.backward()
        optimizer.step()
    SAVE
"""
MIGRATED = """
import torch
from helpers import save_checkpoint

def main(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    SAVE
"""


def test_a_checkpoint_that_code_out_of_sight_saves() -> None:
    def said(save: str, **files: str) -> list[str]:
        before = {"train.py": OUT_OF_SIGHT.replace("SAVE", save), **files}
        found = doubts_of(before, {"train.py": MIGRATED.replace("SAVE", save)})
        return [d.verdict for d in found if d.code == "AMP431"]

    assert said("save_checkpoint(args, model, optimizer)") == ["look"]
    assert said("save_checkpoint(args, model, optimizer)\n    save_checkpoint(args, model, optimizer)") == ["look"]
    assert said("save_checkpoint(args, model.state_dict())") == []
    helpers = (
        "import torch\n\ndef save_checkpoint(args, model, optimizer):\n    torch.save(model.state_dict(), args.path)\n"
    )
    assert said("save_checkpoint(args, model, optimizer)", **{"helpers.py": helpers}) == []


def test_what_a_helper_is_given_beside_the_scaler_has_a_key_of_its_own() -> None:
    helper = """
    import torch

    def save(path, model, other):
        torch.save({"model": model, "scaler": other}, path)
    """
    body = BEFORE.partition("import amp\n")[2].replace('checkpoint["amp"]', 'checkpoint["scaler"]')
    saves = 'torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)'
    before = helper.replace("import torch\n", "import torch\n    from apex import amp\n") + body.replace(
        saves, "save(path, model.state_dict(), amp.state_dict())"
    )
    saves = 'torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)'
    after = helper + AFTER.partition("import torch\n")[2].replace(
        saves, "save(path, model.state_dict(), scaler.state_dict())"
    )
    assert not told(doubts(before, after), "AMP431")
    other = after.replace('checkpoint["scaler"]', 'checkpoint["scaling"]')
    assert [v for _, v in told(doubts(before, other), "AMP431")] == ["refuse"]


@pytest.mark.parametrize("loaded", ["state", "read('scaler.pt')", "checkpoints[0]('scaler.pt')"])
def test_a_state_that_is_not_read_from_a_key(loaded: str) -> None:
    before = BEFORE.replace('checkpoint["amp"]', loaded)
    after = AFTER.replace('        if "scaler" in checkpoint:\n    ', "").replace('checkpoint["scaler"]', loaded)
    assert not told(doubts(before, after), "AMP431")


@pytest.mark.parametrize(
    ("importing", "making", "now", "expected"),
    [
        ("from apex.optimizers import FusedAdam as Adam", "Adam", "from torch.optim import AdamW as Adam", 1),
        ("from apex.optimizers import FusedAdam", "FusedAdam", "from torch.optim import AdamW as FusedAdam", 1),
        ("import apex.optimizers as optim", "optim.FusedAdam", "import apex.optimizers as optim\nimport os", 0),
        ("from apex.optimizers import FusedSGD as SGD", "SGD", "from torch.optim import SGD", 0),
    ],
)
def test_the_same_words_that_mean_another_optimizer(importing: str, making: str, now: str, expected: int) -> None:
    rest = f"""

def resume(model, path):
    optimizer = {making}(model.parameters(), lr=0.1)
    optimizer.load_state_dict(torch.load(path))
    return optimizer
"""
    found = doubts(f"import torch\n{importing}{rest}", f"import torch\n{now}{rest}")
    assert len([d for d in found if d.code == "AMP431" and "step count" in d.message]) == expected


@pytest.mark.parametrize(("further", "lines"), [("", []), ("optimizer.load_state_dict(torch.load(path))", [7])])
def test_an_optimizer_that_loads_what_it_gives_itself(further: str, lines: list[int]) -> None:
    text = f"""
import torch
from apex.optimizers import FusedAdam

def resume(model, path):
    optimizer = FusedAdam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    {further or "pass"}
    return optimizer
"""
    after = text.replace("from apex.optimizers import FusedAdam", "from torch.optim import AdamW as FusedAdam")
    messages = [d.message for d in doubts(text, after) if d.code == "AMP431"]
    assert ["train.py:7" in m for m in messages] == [True for _ in lines]


def test_an_optimizer_that_another_file_gives_its_name() -> None:
    use = """
    import torch
    from optimizers import Adam

    def resume(model, path):
        optimizer = Adam(model.parameters(), lr=0.1)
        optimizer.load_state_dict(torch.load(path))
        return optimizer
    """
    before = {"optimizers.py": "from apex.optimizers import FusedAdam as Adam\n", "main.py": use}
    found = doubts_of(before, {"optimizers.py": "from torch.optim import AdamW as Adam\n"})
    assert [(d.path, d.line) for d in found if d.code == "AMP431"] == [("optimizers.py", 1)]
    own = "def build(model):\n    return Adam(model.parameters())\n"
    files = {**before, "optimizers.py": before["optimizers.py"] + own}
    (told_once,) = [d for d in doubts_of(files, {"optimizers.py": f"from torch.optim import AdamW as Adam\n{own}"})
                    if d.code == "AMP431"]  # fmt: skip
    assert (told_once.path, told_once.line) == ("optimizers.py", 3)
    files = {**before, "other.py": ADAM}
    now = ADAM.replace("    from apex.optimizers import FusedAdam\n", "    from torch.optim import AdamW\n")
    found = doubts_of(files, {"optimizers.py": "from torch.optim import AdamW as Adam\n",
                              "other.py": now.replace("FusedAdam(", "AdamW(")})  # fmt: skip
    assert {(d.path, d.line) for d in found if d.code == "AMP431"} == {("optimizers.py", 1), ("other.py", 5)}


READ = """
    def epoch_of(path):
        checkpoint = torch.load(path)
        TESTED
            state = checkpoint["amp"]
        return state
    """


@pytest.mark.parametrize(
    ("tested", "said"),
    [
        ("with torch.no_grad():", [(13, "refuse")]),
        ("if checkpoint:", [(13, "refuse")]),
        ('if "amp" in checkpoint:', [(12, "refuse")]),
        ('if checkpoint.get("amp"):', [(12, "refuse")]),
        ('if "scaler" in checkpoint or "amp" in checkpoint:', []),
    ],
)
def test_the_old_key_is_read_elsewhere(tested: str, said: list[tuple[int, str]]) -> None:
    read = READ.replace("TESTED", tested)
    before = BEFORE.replace('amp.load_state_dict(checkpoint["amp"])', "amp.load_state_dict(epoch_of(path))")
    after = AFTER.replace('if "scaler" in checkpoint:', "if epoch_of(path):").replace(
        'checkpoint["scaler"]', "epoch_of(path)"
    )
    assert told(doubts(before + read, after + read), "AMP431") == said


def test_the_old_key_of_something_else() -> None:
    other = '\n    def wants(options):\n        return options["amp"]\n'
    assert not told(doubts(BEFORE + other, AFTER + other), "AMP431")


AVERAGE = """
import torch
from apex import amp
from data import loader

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save({"model": model.state_dict(), "step": 1, "amp": amp.state_dict()}, "a.pt")


def average(paths):
    total = {}
    for path in paths:
        for key, value in torch.load(path).items():
            if TEST:
                continue
            for name, tensor in value.items():
                total[name] = total.get(name, 0) + tensor
    return total
"""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ('key in ["step", "amp"]', True),
        ('key == "step" or key == "amp"', True),
        ('key not in ("model",)', False),
        ('path == "amp"', False),
    ],
)
def test_a_loop_that_passes_over_the_old_key(test: str, said: bool) -> None:
    found = rewrite_files({"train.py": AVERAGE.replace("TEST", test)})["train.py"]
    assert '"scaler"' in (found.after or "")
    assert any(f.code == "AMP431" and "told by its name" in f.message for f in found.findings) is said


@pytest.mark.parametrize("removed", ['del checkpoint["amp"]', 'checkpoint.pop("amp")'])
def test_an_entry_that_is_taken_out_under_the_old_key(removed: str) -> None:
    def with_removal(text: str) -> str:
        line = 'load_state_dict(checkpoint["{}"])\n'
        for key in ("amp", "scaler"):
            there = line.format(key)
            text = text.replace(there, f"{there}        {removed}\n")
        return text

    assert told(doubts(with_removal(BEFORE), with_removal(AFTER)), "AMP431") == [(8, "refuse")]
    right = with_removal(AFTER).replace(removed, removed.replace("amp", "scaler"))
    assert not told(doubts(with_removal(BEFORE), right), "AMP431")
    lenient = with_removal(AFTER).replace(removed, 'checkpoint.pop("amp", None)')
    assert not told(doubts(with_removal(BEFORE), lenient), "AMP431")


@pytest.mark.parametrize(
    ("asks", "told_of"),
    [
        ('has = "amp" in checkpoint', ["refuse"]),
        ('has = "amp" not in checkpoint.keys()', ["refuse"]),
        ('has = checkpoint.get("amp") is not None', ["refuse"]),
        ('has = "scaler" in checkpoint', []),
        ('has = "scaler" in checkpoint or "amp" in checkpoint', []),
        ('has = "amp" in path', []),
    ],
)
def test_what_asks_for_an_entry_that_nothing_saves_any_more(asks: str, told_of: list[str]) -> None:
    """Wherever it stands: it decides, say, on whether mixed precision is on."""
    before = BEFORE.replace(
        "        amp.load_state_dict", '        has = "amp" in checkpoint\n        amp.load_state_dict'
    )
    after = AFTER.replace('        if "scaler" in', f'        {asks}\n        if "scaler" in')
    assert [v for _, v in told(doubts(before, after), "AMP431")] == told_of


@pytest.mark.parametrize(
    ("asks", "refused"),
    [
        ('"amp" in checkpoint', True),
        ('"amp" in checkpoint.keys()', True),
        ('"scaler" in checkpoint.keys() or "amp" in checkpoint.keys()', False),
    ],
)
def test_a_switch_of_a_region_that_asks_for_it(asks: str, refused: bool) -> None:
    after = AFTER.replace(
        '        if "scaler" in', f'        torch.autocast("cuda", enabled={asks})\n        if "scaler" in'
    )
    assert ("refuse" in [v for _, v in told(doubts(BEFORE, after), "AMP532")]) is refused


APART = """
    import torch
    from apex.optimizers import FP16_Optimizer, FusedAdam

    class Reader:
        def __init__(self, model):
            self.optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def resume(self, path):
            self.optimizer.load_state_dict(torch.load(path)["optimizer"])

    class Speaker:
        def __init__(self, model):
            self.optimizer = WRAPPED

        def train(self, x):
            self.optimizer.step()
    """


@pytest.mark.parametrize("wrapped", ["FusedAdam(model.parameters())", "FP16_Optimizer(FusedAdam(model.parameters()))"])
@pytest.mark.parametrize("loads", [False, True])
def test_the_state_of_an_optimizer_that_nothing_loads_into(wrapped: str, loads: bool) -> None:
    before = APART.replace("WRAPPED", wrapped)
    if loads:
        before = before.replace("self.optimizer.step()", "self.optimizer.load_state_dict(x)")
    after = before.replace("    from apex.optimizers import FP16_Optimizer, FusedAdam\n", "")
    after = after.replace(wrapped, "torch.optim.AdamW(model.parameters(), weight_decay=0.0)")
    assert bool([d for d in doubts(before, after) if d.code == "AMP431" and "FusedAdam saved" in d.message]) is loads
