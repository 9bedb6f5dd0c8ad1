"""DeepSpeed's section "amp" that is put into a dictionary, and not written in it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite, check_untouched

PUT = """
    import deepspeed


    def configuration(args):
        config = {"train_batch_size": args.batch}
        if args.half:
            config['amp'] = {
                'enabled': True,
                'opt_level': LEVEL,
            }
        else:
            config['fp16'] = {'enabled': True}
        return config
    """


GIVEN = {
    "torch_autocast": "'dtype': 'float16',",
    "fp16": "'loss_scale_window': 2000,\n                'hysteresis': 1,",
}


@pytest.mark.parametrize(("level", "key"), [("'O1'", "torch_autocast"), ("'O2'", "fp16")])
def test_a_section_that_is_put_there(level: str, key: str) -> None:
    """What another branch puts there is no section beside it."""
    source = PUT.replace("LEVEL", level)
    expected = source.replace("config['amp']", f"config['{key}']").replace(f"'opt_level': {level},", GIVEN[key])
    result = check_rewrite(source, expected)
    assert [f.review for f in result.findings if f.code == "AMP804"] == ["review"]


def test_a_level_that_is_only_known_at_run_time_is_left_and_told() -> None:
    result = check_manual(PUT.replace("LEVEL", "f'O{args.level}'"), "AMP804")
    assert result.after is None
    assert [f.message.partition(":")[0] for f in result.findings] == ["opt_level is computed"]


@pytest.mark.parametrize(
    "put", ["config['amp'] = args.amp", "config['amps'] = {'enabled': True}", "config['amp'] = {'gain': 2}"]
)
def test_other_entries_are_nothing_of_apexs(put: str) -> None:
    check_untouched(f"import deepspeed\n\nconfig = {{'train_batch_size': 8}}\n{put}\n")
