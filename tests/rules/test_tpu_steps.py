"""A step on a TPU is no step of Apex's, whatever the program does on CUDA devices."""

from __future__ import annotations

from textwrap import dedent

from tests.rules.helpers import rewrite, rewrite_files

TRAINER = """\
import torch
from tools import is_tpu_available

if is_tpu_available():
    import torch_xla.core.xla_model as xm


class Trainer:
    def __init__(self, args, model, optimizer):
        self.args, self.model, self.optimizer = args, model, optimizer

    def train(self, loader):
        model = self.model
        if self.args.fp16:
            from apex import amp

            model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")
        for x in loader:
            self.backward(model(x).mean())
            if is_tpu_available():
                xm.optimizer_step(self.optimizer)
            else:
                self.optimizer.step()
            model.zero_grad()

    def backward(self, loss):
        if self.args.fp16:
            from apex import amp

            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
"""


def test_the_step_of_a_tpu_stays_and_is_told() -> None:
    result = rewrite(TRAINER)
    assert result.after is not None
    assert "xm.optimizer_step(self.optimizer)\n            else:\n                self.scaler.step(" in result.after
    (told,) = [f for f in result.findings if f.code == "AMP216"]
    assert (told.status, told.review, told.line) == ("note", "look", 21)


def test_a_backward_of_its_own_branch_scales_nothing() -> None:
    apart = TRAINER.replace("            self.backward(model(x).mean())\n", "            loss = model(x).mean()\n")
    apart = apart.replace("xm.optimizer_step(", "loss.backward()\n                xm.optimizer_step(")
    apart = apart.replace(
        "                self.optimizer.step()", "                BACKWARD\n                self.optimizer.step()"
    )
    for backward in ("self.backward(loss)", "self.both(loss)"):
        text = apart.replace("BACKWARD", backward) + "\n    def both(self, loss):\n        self.backward(loss)\n"
        result = rewrite(text)
        (told,) = [f for f in result.findings if f.code == "AMP216"]
        assert told.review == "as-is"
        assert told.message.endswith("The backward before it scales nothing")
        scaled = rewrite(text.replace("                loss.backward()\n", f"                {backward}\n"))
        assert [f.review for f in scaled.findings if f.code == "AMP216"] == ["look"]


def test_one_that_no_import_brings_is_known_by_its_usual_name() -> None:
    text = TRAINER.replace("if is_tpu_available():\n    import torch_xla.core.xla_model as xm\n", "")
    result = rewrite(text)
    assert "xm.optimizer_step(self.optimizer)\n            else:\n                self.scaler.step(" in (
        result.after or ""
    )
    assert rewrite(text.replace("xm.", "solver.")).after is None


def test_a_step_of_anything_else_out_of_sight_does_not() -> None:
    result = rewrite(TRAINER.replace("torch_xla.core.xla_model", "strategy"))
    assert result.after is None
    assert [f.code for f in result.findings if f.status == "manual" and f.line == 21] == ["AMP216"]


def test_a_method_of_that_name_elsewhere_is_not_of_this_program() -> None:
    """`saver.save_checkpoint` is a library's; the function of that name belongs to another program of the repository."""
    files = {
        "train.py": """
            from apex import amp
            from library import Saver, build, loader

            def main():
                model, optimizer = build()
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                saver = Saver()
                for x in loader:
                    with amp.scale_loss(model(x), optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
                saver.save_checkpoint(1)

            main()
            """,
        "detection/checkpoint.py": """
            from apex import amp

            def save_checkpoint(epoch):
                return {"epoch": epoch, "amp": amp.state_dict()}
            """,
        "detection/other.py": """
            from apex import amp
            from library import build

            def tune(model, optimizer):
                return amp.initialize(model, optimizer, opt_level="O1")
            """,
    }
    results = rewrite_files(files)
    assert results["train.py"].status == "migrated"
    assert "def save_checkpoint(epoch, scaler=None)" in (results["detection/checkpoint.py"].after or "")


def test_a_question_for_the_stash_that_does_nothing_goes() -> None:
    saved = """
        def save(optimizer, path):
            state = {"optimizer": optimizer.state_dict()}
            if hasattr(optimizer, "_amp_stash"):
                pass  # TODO fp16 optimizer
            torch.save(state, path)
    """
    result = rewrite(TRAINER + dedent(saved))
    assert result.after is not None
    assert "_amp_stash" not in result.after
    assert "    torch.save(state, path)\n" in result.after


def test_the_module_of_the_tpu_may_be_kept_in_a_field() -> None:
    kept = TRAINER.replace("xm.optimizer_step(self.optimizer)", "self.args.xla_model.optimizer_step(self.optimizer)")
    given = kept + dedent(
        """

        def main(args):
            if is_tpu_available():
                args.xla_model = xm
            Trainer(args, build(), optimizer()).train([])
        """
    )
    result = rewrite(given)
    assert result.after is not None
    assert "self.args.xla_model.optimizer_step(self.optimizer)\n" in result.after
    assert [(f.review, f.line) for f in result.findings if f.code == "AMP216"] == [("look", 21)]
    other = rewrite(given.replace("args.xla_model = xm", "args.xla_model = strategy"))
    assert [f.code for f in other.findings if f.status == "manual" and f.line == 21] == ["AMP216"]
