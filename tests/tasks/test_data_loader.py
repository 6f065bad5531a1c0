import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from small_data import TEST, TRAIN, cifar10_files, mnist_files, small, tiny, write_files

from spyker.errors import DataError, UsageError
from spyker.tasks.data import cache, sources
from spyker.tasks.data.dataset import Dataset, SourceError
from spyker.tasks.data.load import fetch, find, location, verify
from spyker.tasks.data.mnist_files import idx
from spyker.tasks.data.wikitext2_files import parse as parse_text

TINY, CONTENT = tiny()


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_files_in_a_folder_are_unpacked_once_and_mapped_ever_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    folder = write_files(tmp_path / "data" / "tiny", CONTENT, packing)
    for path in (*folder.iterdir(), folder):
        path.chmod(path.stat().st_mode & ~0o222)
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))
    assert location(TINY)[0]
    assert fetch(TINY) == f"folder {tmp_path / 'data'}"
    arrays = cache.open_arrays(TINY)
    assert arrays is not None
    assert {name: array.tobytes() for name, array in arrays.items()} == CONTENT
    assert all(isinstance(array, np.memmap) and not array.flags.writeable for array in arrays.values())
    monkeypatch.setenv("SPYKER_DATA", "")
    assert fetch(TINY) is None
    assert "in the cache" in location(TINY)[1]


def test_a_file_may_have_its_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "data" / "tiny", {f"{name}.other": data for name, data in CONTENT.items()})
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))
    assert fetch(TINY)


def refused(dataset: Dataset, own_cache: Path) -> str:
    """Try to fetch in vain; nothing may be left behind."""
    with pytest.raises(DataError) as caught:
        fetch(dataset)
    assert cache.open_arrays(dataset) is None
    assert not [p for p in own_cache.rglob("*") if p.is_file() or p.name.startswith(".partial")]
    return str(caught.value)


def test_without_any_source_the_error_says_what_was_tried_and_what_to_do(own_cache: Path) -> None:
    message = refused(TINY, own_cache)
    for part in ("tiny: download failed", "--data-dir or SPYKER_DATA", str(own_cache), "one, two", "DIR/tiny/"):
        assert part in message
    assert location(TINY) == (False, "not downloaded; run: spyker data fetch tiny")


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize("damage", ["wrong", "longer", "cut", "missing"])
def test_damaged_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path, packing: str, damage: str
) -> None:
    content = CONTENT | {"two": {"wrong": b"owt" * 50, "longer": CONTENT["two"] + b"x"}.get(damage, CONTENT["two"])}
    path = write_files(tmp_path / "data" / "tiny", content, packing) / f"two{packing}"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "missing":
        path.unlink()
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))
    message = refused(TINY, own_cache)
    if damage == "missing":
        assert "file not found: tiny/two" in message
    elif damage == "cut" and packing:
        assert f"two{packing} is damaged" in message
    else:
        assert f"two{packing} has the wrong checksum" in message


def test_a_file_that_unpacks_to_very_much_more_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    write_files(tmp_path / "data" / "tiny", CONTENT | {"one": bytes(50_000_000)}, ".gz")
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))
    assert "more than 100 bytes" in refused(TINY, own_cache)


def test_a_folder_that_does_not_exist_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="--data-dir"):
        fetch(TINY)
    with pytest.raises(UsageError, match="mnist, cifar10"):
        find("tiny")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SPYKER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"SPYKER_CACHE"):
        fetch(TINY)


def test_a_cache_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests may be root
    with pytest.raises(DataError, match=r"cannot write the cache .*permission denied"):
        fetch(TINY)


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    write_files(tmp_path / "data" / "tiny", CONTENT)
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))

    def full(file: object, *_: object, **__: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        assert "No space left" in refused(TINY, own_cache)
    assert fetch(TINY)


def test_a_damaged_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    write_files(tmp_path / "data" / "tiny", CONTENT)
    monkeypatch.setenv("SPYKER_DATA", str(tmp_path / "data"))
    fetch(TINY)
    path = cache.path_of(TINY, TINY.arrays[0])
    path.write_bytes(path.read_bytes()[:-1])  # cut off
    assert fetch(TINY) is not None
    assert [problem for _, problem in verify(TINY)] == [None] * 4
    path.write_bytes(path.read_bytes()[:-1] + b"?")  # as long as before: only the checksum can tell
    assert fetch(TINY) is None
    assert "wrong checksum" in str(verify(TINY)[2][1])
    assert fetch(TINY) is not None
    (tmp_path / "data" / "tiny" / "two").write_bytes(b"2")
    assert "wrong checksum" in str(verify(TINY)[1][1])


def test_what_a_killed_process_left_is_swept_away_a_day_later(own_cache: Path) -> None:
    old, new = own_cache / "tiny" / ".partial-old", own_cache / "tiny" / ".partial-new"
    for left in (old, new):
        left.mkdir(parents=True)
        (left / "half").write_text("half")
    os.utime(old, (0, 0))
    cache.make_folder(TINY)
    assert list((own_cache / "tiny").iterdir()) == [new]


def test_the_cache_is_where_the_platform_says_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPYKER_CACHE")
    assert cache.cache_folder().name in ("spyker", "Cache")


# The network: a server on this machine.


class Site(BaseHTTPRequestHandler):
    files: dict[str, bytes]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        data = self.files.get(self.path)
        self.send_response(404 if data is None else 200)
        data = data or b""
        self.send_header("Content-Length", str(len(data) + (50 if self.path.startswith("/half") else 0)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Site.files, Site.asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def at(url: str, checksums: dict[str, str] | None = None) -> Dataset:
    return dataclasses.replace(TINY, url=url, checksums=checksums or {})


def packed(name: str) -> bytes:
    return gzip.compress(CONTENT[name], mtime=0)


def test_downloads_are_verified_and_reported(site: str) -> None:
    Site.files = {f"/{name}.gz": packed(name) for name in CONTENT}
    checksums = {name: f"md5:{hashlib.md5(packed(name)).hexdigest()}" for name in CONTENT}
    seen: list[tuple[str, int, int]] = []
    source = fetch(at(site + "/{name}.gz", checksums), lambda *what: seen.append(what))
    assert source == site + "/{name}.gz"
    assert (f"downloading {site}/one.gz", len(packed("one")), len(packed("one"))) in seen


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("/none/{name}", "404"), ("/bad/{name}", "wrong checksum"), ("/half/{name}", "interrupted"), ("/bad.zip", "zip")],
)
def test_a_bad_download_leaves_nothing(site: str, own_cache: Path, path: str, complaint: str) -> None:
    Site.files = {f"/half/{name}": data for name, data in CONTENT.items()}
    Site.files |= {f"/bad/{name}": b"something else" for name in CONTENT} | {"/bad.zip": b"PK no"}
    message = refused(at(site + path), own_cache)
    assert complaint in message


def test_a_download_with_the_wrong_checksum_is_not_even_unpacked(site: str, own_cache: Path) -> None:
    Site.files = {"/one": CONTENT["one"], "/two": CONTENT["two"]}
    message = refused(at(site + "/{name}", {"one": "md5:" + "0" * 32}), own_cache)
    assert "one has the wrong checksum" in message
    assert Site.asked == ["/one"]


def test_zip_archives(site: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in CONTENT.items():
            archive.writestr(f"folder/{name}.other", data)
    Site.files = {"/x.zip": file.getvalue()}
    assert fetch(at(site + "/x.zip")) == site + "/x.zip"


def test_tar_archives(site: str, own_cache: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in CONTENT.items():
            member = tarfile.TarInfo(f"folder/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    Site.files = {"/x.tar.gz": file.getvalue(), "/cut.tar.gz": file.getvalue()[:-40]}
    assert "damaged" in refused(at(site + "/cut.tar.gz"), own_cache)
    assert fetch(at(site + "/x.tar.gz"))


def test_nobody_answers(site: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1:9: no connection" in refused(at("http://127.0.0.1:9/{name}"), own_cache)
    monkeypatch.setattr(sources, "READ_TIMEOUT", 0.2)
    quiet = threading.Event()
    monkeypatch.setattr(Site, "do_GET", lambda self: quiet.wait(2))
    assert "timed out" in refused(at(site + "/{name}"), own_cache)
    quiet.set()


# Formats.


def test_mnist_from_idx() -> None:
    assert small("mnist").parse(mnist_files())["train-images"].shape == (TRAIN, 28, 28)
    with pytest.raises(SourceError, match="idx"):
        idx(b"\0\0\x0d\x01")


def test_cifar10_from_records() -> None:
    content = cifar10_files()
    arrays = small("cifar10").parse(content)
    assert arrays["train-images"].shape == (5 * TEST, 3, 32, 32)
    last = content["test_batch.bin"][-3073:]
    assert (arrays["test-labels"][-1], arrays["test-images"][-1].tobytes()) == (last[0], last[1:])


def test_text_becomes_numbers_of_characters() -> None:
    arrays = parse_text({"train.txt": "bad – dab".encode(), "test.txt": b"add"})
    vocabulary = "".join(map(chr, arrays["vocabulary"]))
    assert vocabulary == " abd–"
    assert "".join(vocabulary[i] for i in arrays["train"]) == "bad – dab"
    assert arrays["test"].tolist() == [1, 3, 3]
    with pytest.raises(SourceError, match="'x'"):
        parse_text({"train.txt": b"abc", "test.txt": b"x"})
    with pytest.raises(SourceError, match="UTF-8"):
        parse_text({"train.txt": b"\xff", "test.txt": b"x"})
