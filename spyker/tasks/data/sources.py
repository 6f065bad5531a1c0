"""The sources of data, each a function that returns arrays or says in a SourceError why it cannot."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urlsplit

from spyker.tasks.data import unpack
from spyker.tasks.data.dataset import Array, Dataset, Report, SourceError

CONNECT_SECONDS, SILENCE_SECONDS = 5.0, 20.0  # a server that says nothing for so long is given up


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


def from_url(dataset: Dataset, scratch: Path, report: Report) -> dict[str, Array]:
    """The open internet."""
    content: dict[str, bytes]
    if "{name}" in dataset.url:
        content = {}
        for file in dataset.files:
            path = download(dataset.url.format(name=file.name), dataset.checksums.get(file.name), scratch, report)
            content[file.name] = unpack.read(path, file)
    else:
        path = download(dataset.url, dataset.checksums.get(""), scratch, report)
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
        return Path(pooch.retrieve(url, checksum, fname=name, path=scratch, downloader=downloader))
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
