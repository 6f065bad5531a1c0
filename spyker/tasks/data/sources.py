"""Sources of datasets: functions that return arrays or raise a ``SourceError``."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urlsplit

from spyker.tasks.data import unpack
from spyker.tasks.data.dataset import Array, Dataset, Report, SourceError

CONNECT_TIMEOUT, READ_TIMEOUT = 5.0, 20.0  # seconds


def from_folder(dataset: Dataset, folder: Path, report: Report) -> dict[str, Array]:
    """Read a dataset from the user's data folder."""
    found = {file: unpack.find(folder / dataset.name, file) for file in dataset.files}
    missing = [file.name for file, path in found.items() if path is None]
    if missing:
        names = ", ".join(f"{dataset.name}/{name}" for name in missing)
        raise SourceError(f"file not found: {names} (also not as .gz or .xz)")
    content: dict[str, bytes] = {}
    done, total = 0, sum(file.size for file in dataset.files)
    for file, path in found.items():
        assert path is not None
        report(f"reading {path}", done, total)
        content[file.name] = unpack.read(path, file)
        done += file.size
    return dataset.parse(content)


def from_url(dataset: Dataset, scratch: Path, report: Report) -> dict[str, Array]:
    """Download a dataset."""
    content: dict[str, bytes] = {}
    if "{name}" in dataset.url:
        for file in dataset.files:
            path = download(dataset.url.format(name=file.name), dataset.checksums.get(file.name), scratch, report)
            content[file.name] = unpack.read(path, file)
    else:
        path = download(dataset.url, dataset.checksums.get(""), scratch, report)
        report(f"unpacking {path.name}", 0, 0)
        content = unpack.read_archive(path, dataset.files)
    return dataset.parse(content)


class DownloadBar:
    """A progress bar with the methods that pooch calls."""

    def __init__(self, action: str, report: Report) -> None:
        self.action, self.report = action, report
        self.total, self.done = 0, 0

    def update(self, count: int) -> None:
        """Add downloaded bytes."""
        self.done += count
        self.report(self.action, self.done, int(self.total or 0))

    def reset(self) -> None:
        """Start from zero: pooch counts the whole file again at the end."""
        self.done = 0

    def close(self) -> None:
        """Do nothing."""


def download(url: str, checksum: str | None, scratch: Path, report: Report) -> Path:
    """Download one file into ``scratch``."""
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.ERROR)
    action = f"downloading {url}"
    report(action, 0, 0)
    downloader = pooch.HTTPDownloader(progressbar=DownloadBar(action, report), timeout=(CONNECT_TIMEOUT, READ_TIMEOUT))
    name, host = urlsplit(url).path.rpartition("/")[2], urlsplit(url).netloc
    try:
        return Path(pooch.retrieve(url, checksum, fname=name, path=scratch, downloader=downloader))
    except requests.Timeout:
        raise SourceError(f"{host}: the connection timed out") from None
    except requests.HTTPError as error:
        raise SourceError(str(error)) from None
    except requests.exceptions.ChunkedEncodingError:  # a response that ends too early
        raise SourceError(f"{host}: the download was interrupted") from None
    except requests.ConnectionError:
        raise SourceError(f"{host}: no connection") from None
    except (requests.RequestException, OSError) as error:
        raise SourceError(f"{host}: {error}") from None
    except ValueError:  # pooch raises it for a wrong checksum
        raise SourceError(f"{host}: {name} has the wrong checksum") from None
