"""Nothing beside mixed precision moves."""

from __future__ import annotations

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex import amp

    def train(args, model, optimizer, loader, log):
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)
        for step, batch in enumerate(loader):
            loss = model(batch).mean()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            # keep an eye on the learning rate
            if step % 10 == 0:
                log.write(loss)
            loader.shuffle()
        torch.save(model, "run_%s.pt" % args.loss_scale)
    """
AFTER = """
    import torch

    def train(args, model, optimizer, loader, log):
        scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
        for step, batch in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
                loss = model(batch).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            # keep an eye on the learning rate
            if step % 10 == 0:
                log.write(loss)
            loader.shuffle()
        torch.save(model, "run_%s.pt" % args.loss_scale)
    """


def test_a_right_migration() -> None:
    assert not told(doubts(BEFORE, AFTER), "AMP134")


def test_a_statement_that_went() -> None:
    after = AFTER.replace("            loader.shuffle()\n", "")
    assert told(doubts(BEFORE, after), "AMP134") == [(18, "refuse")]


def test_a_statement_under_another_test() -> None:
    after = AFTER.replace("            loader.shuffle()\n", "                loader.shuffle()\n")
    assert told(doubts(BEFORE, after), "AMP134") == [(18, "refuse")]


def test_a_value_that_is_read_for_something_else() -> None:
    line = "        args.loss_scale = None if args.loss_scale is None else float(args.loss_scale)\n"
    after = AFTER.replace("        scaler = ", f"{line}        scaler = ")
    found = [d for d in doubts(BEFORE, after) if d.code == "AMP134"]
    assert [d.verdict for d in found] == ["refuse"]
    assert "line 19 reads it" in found[0].message


def test_a_value_that_is_read_before_it_is_given_another() -> None:
    show = "        print(args.loss_scale)\n        if args.fp16:\n            model, optimizer"
    before = BEFORE.replace("        if args.fp16:\n            model, optimizer", show).replace(
        " % args.loss_scale", ""
    )
    line = "        print(args.loss_scale)\n        args.loss_scale = float(args.loss_scale)\n"
    after = AFTER.replace("        scaler = ", f"{line}        scaler = ").replace(" % args.loss_scale", "")
    assert not told(doubts(before, after), "AMP134")


def test_a_comment_that_went() -> None:
    after = AFTER.replace("            # keep an eye on the learning rate\n", "")
    assert told(doubts(BEFORE, after), "AMP134") == [(15, "review")]


def test_comments_about_apex_may_go() -> None:
    before = BEFORE.replace("# keep an eye", "# Apex: keep an eye")
    after = AFTER.replace("            # keep an eye on the learning rate\n", "")
    assert not told(doubts(before, after), "AMP134")


def test_a_guard_whose_class_is_now_torchs() -> None:
    before = """
        from apex.normalization import FusedLayerNorm

        def init(module):
            if isinstance(module, FusedLayerNorm):
                module.bias.data.fill_(0)
        """
    after = """
        from torch.nn import LayerNorm

        def init(module):
            if isinstance(module, LayerNorm):
                module.bias.data.fill_(0)
        """
    assert not told(doubts(before, after), "AMP134")
