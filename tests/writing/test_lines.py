"""Comments and blank lines above statements that go."""

from __future__ import annotations

import pytest

from tests.writing.test_edits import check, edits_of, statement


def test_a_comment_left_above_a_statement_that_went_is_not_cut_off_from_the_next() -> None:
    edits = edits_of(
        "if x:\n    # Distributed training\n    try:\n        import a\n    except b:\n        c\n\n    d = 1\n"
    )
    edits.delete(statement(edits, 3))
    check(edits, "if x:\n    # Distributed training\n    d = 1\n")


def test_comments_of_two_statements_stay_apart() -> None:
    edits = edits_of("# First part\na = 1\n\n# Second part\nb = 2\n")
    edits.delete(statement(edits, 2))
    check(edits, "# First part\n\n# Second part\nb = 2\n")


@pytest.mark.parametrize(
    "comment",
    ["# FIXME separate scaling for each loss", "# unscale first", "# fp16 training", "# Use apex"],
)
def test_a_comment_about_scaling_goes_with_what_it_stands_above(comment: str) -> None:
    edits = edits_of(f"x = 0\n{comment}\na = 1\nb = 2\n")
    edits.delete(statement(edits, 3))
    check(edits, "x = 0\nb = 2\n")


@pytest.mark.parametrize("comment", ["# escalate", "# large-scaled-out cluster is not meant\n\n", "# the model"])
def test_a_comment_about_other_things_or_further_up_stays(comment: str) -> None:
    edits = edits_of(f"x = 0\n{comment}\na = 1\nb = 2\n")
    edits.delete(statement(edits, len(f"x = 0\n{comment}\n".splitlines()) + 1))
    check(edits, f"x = 0\n{comment}\nb = 2\n")


@pytest.mark.parametrize(
    "comment",
    ["# delay_allreduce waits\n    # for the last gradient", "# This must be done after amp.initialize", "# APEX"],
)
def test_a_comment_that_speaks_of_apex_goes_from_above_what_has_changed(comment: str) -> None:
    edits = edits_of(
        f"x = 0\n{comment.replace('    ', '')}\nif x:\n    {comment}\n    y = DDP(x)\n    {comment}\n    z = x\n"
    )
    edits.replace(statement(edits, 4 + 2 * comment.count("\n") + 1).value, "parallel(x)")  # type: ignore[attr-defined]
    check(edits, f"x = 0\nif x:\n    y = parallel(x)\n    {comment}\n    z = x\n")


@pytest.mark.parametrize(
    "comment",
    [
        "# the parallel one",
        "# adapted from apex/examples",
        "# several GPUs (should be after apex fp16 initialization)",
        "# see https://nvidia.github.io/apex/parallel.html",
        "# delay_allreduce waits\n\n",
        "# an apexlike thing",
    ],
)
def test_a_comment_on_other_things_further_up_or_on_where_code_comes_from_stays(comment: str) -> None:
    edits = edits_of(f"x = 0\n{comment}\ny = DDP(x)\n")
    edits.replace(statement(edits, comment.count("\n") + 3).value, "parallel(x)")  # type: ignore[attr-defined]
    check(edits, f"x = 0\n{comment}\ny = parallel(x)\n")


def test_a_comment_above_a_definition_in_which_something_changes_stays() -> None:
    edits = edits_of("x = 0\n# for apex\ndef f(x):\n    y = DDP(x)\n")
    edits.replace(statement(edits, 4).value, "parallel(x)")  # type: ignore[attr-defined]
    check(edits, "x = 0\n# for apex\ndef f(x):\n    y = parallel(x)\n")


RULE = "#" * 30


@pytest.mark.parametrize("last", ["", f"{RULE}\n"])
def test_the_ruled_line_that_opens_a_frame_stays_with_the_one_that_closes_it(last: str) -> None:
    """Both, where the frame is around the comment alone, go with that."""
    edits = edits_of(f"x = 0\n{RULE}\n# amp.initialize wants\n# the model on its GPU\n{last}a = 1\n{RULE}\nb = 2\n")
    edits.delete(statement(edits, 5 + bool(last)))
    check(edits, f"x = 0\n{'' if last else RULE + chr(10)}{RULE}\nb = 2\n")


def test_a_ruled_line_stays_above_what_has_changed_too() -> None:
    edits = edits_of(f"x = 0\n{RULE}\n# APEX\ny = DDP(x)\n{RULE}\nb = 2\n")
    edits.replace(statement(edits, 4).value, "parallel(x)")  # type: ignore[attr-defined]
    check(edits, f"x = 0\n{RULE}\ny = parallel(x)\n{RULE}\nb = 2\n")


BEYOND = "    # several GPUs\n    #if many:\n        #x = parallel(x)\n"


@pytest.mark.parametrize("blanks", ["", "\n", "\n\n"])
@pytest.mark.parametrize("around", ["if x:\n", "for x in y:\n"])
@pytest.mark.parametrize(
    "gone",
    ["    if x:\n        a\n", "    if x:\n        if y:\n            a\n", "    with x:\n        pass\n"],
)
def test_code_in_comments_below_a_block_that_goes_stays(gone: str, around: str, blanks: str) -> None:
    """The last of the comments is as deep as the block: the parser takes all of them for its end."""
    edits = edits_of(f"{around}    c = 0\n{gone}{blanks}{BEYOND}\n    b = 2\n")
    edits.delete(statement(edits, 3))
    check(edits, f"{around}    c = 0\n{blanks}{BEYOND}\n    b = 2\n")


def test_it_stays_below_what_takes_the_place_of_a_block_and_at_the_end() -> None:
    edits = edits_of(f"if x:\n    if x:\n        a\n        # of the block\n\n{BEYOND}    b = 2\n")
    edits.delete(statement(edits, 2))
    edits.insert_before(statement(edits, 2), "c = 1")
    check(edits, f"if x:\n    c = 1\n\n{BEYOND}    b = 2\n")
    edits = edits_of(f"if x:\n    b = 2\n    try:\n        a\n    except b:\n        c\n\n{BEYOND}")
    edits.delete(statement(edits, 3))
    check(edits, f"if x:\n    b = 2\n\n{BEYOND}")


def test_it_stays_below_a_branch_that_goes_and_a_block_in_which_something_changes() -> None:
    text = f"if x:\n    if x:\n        a\n    else:\n        b\n\n{BEYOND}\n\n    c = 2\n"
    edits = edits_of(text)
    edits.splice(statement(edits, 2))
    check(edits, f"if x:\n    a\n\n{BEYOND}\n\n    c = 2\n")
    edits = edits_of(text)
    edits.replace(statement(edits, 3), "d")
    check(edits, text.replace("        a\n", "        d\n"))
