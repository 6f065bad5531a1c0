"""WikiText-2: two million words of Wikipedia articles, as sequences of characters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spyker.tasks.data.dataset import Array, Dataset, PreparedArray, RawFile, SourceError

UNICODE = 0x110000  # code points


def parse(content: Mapping[str, bytes]) -> dict[str, Array]:
    """Encode each text as indices into the vocabulary, which is the sorted characters of the training text."""
    try:
        train, test = (
            np.frombuffer(content[f"{split}.txt"].decode("utf-8").encode("utf-32-le"), "<u4")
            for split in ("train", "test")
        )
    except UnicodeDecodeError as error:
        raise SourceError(f"is not UTF-8 ({error})") from None
    vocabulary = np.flatnonzero(np.bincount(train)).astype("<u4")
    index = np.zeros(UNICODE, "<u2")
    index[vocabulary] = np.arange(vocabulary.size)
    unknown = np.setdiff1d(test, vocabulary)
    if unknown.size:
        raise SourceError(f"the test text has characters that the training text lacks, such as {chr(unknown[0])!r}")
    return {"vocabulary": vocabulary, "train": index[train], "test": index[test]}


WIKITEXT2 = Dataset(
    "wikitext2",
    "WikiText-2, 10.8 + 1.3 million characters of Wikipedia articles",
    (
        RawFile(
            "train.txt",
            10_797_148,
            "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            ("wiki.train.tokens",),
        ),
        RawFile(
            "test.txt",
            1_256_449,
            "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ("wiki.test.tokens",),
        ),
    ),
    (
        PreparedArray("vocabulary", "<u4", (283,), "3498cb8667dfdbe2853c6b688dbdc0b87087f4a12a0bb44f65e0ef864cfb2374"),
        PreparedArray(
            "train", "<u2", (10_780_437,), "18db9034288b1aa8666c7ee206c806893ad7af0a6709c079cb89910d3977f68e"
        ),
        PreparedArray("test", "<u2", (1_255_018,), "a7eadb67159c7adb80f999b23f19e941edb8ce0bc625e6cdbf92f80c8737e9d8"),
    ),
    parse,
    "https://wikitext.smerity.com/wikitext-2-v1.zip",
)
