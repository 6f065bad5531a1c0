"""Names and texts of others are harmless in terminals and in file names."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from spyker.untrusted_text import file_stem, printable


@given(st.text())
def test_what_is_printed_controls_no_terminal_and_reads_back_as_json(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text
    assert shown == printable(shown)


def test_ordinary_text_is_printed_unchanged() -> None:
    text = "Zürich → 東京: 0.93 ± 0.01\n\tend 😀"
    assert printable(text) == text


@given(st.text())
def test_a_file_name_stays_in_its_folder_and_is_short(name: str) -> None:
    stem = file_stem(name)
    assert stem
    assert not re.search(r"[\x00-\x1f/\\.:]", stem)
    assert len(f"{stem}-updates.png".encode()) < 255


def test_the_names_of_usual_metrics_are_kept() -> None:
    assert file_stem("accuracy") == "accuracy"
    assert file_stem("training loss") == "training-loss"
