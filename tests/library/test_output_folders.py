"""Where records go, and what may give way to them."""

from pathlib import Path

import pytest

from spyker.api.output_folders import OutputFolder, new_folder, place_for_record
from spyker.records import RecordError, RecordWriter


def test_a_folder_is_made_and_goes_again_unless_it_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deep"
    with OutputFolder(folder):
        assert not list(folder.iterdir())
    assert not list(tmp_path.iterdir())
    with OutputFolder(folder) as place:
        place.keep()
    assert folder.is_dir()


def test_what_somebody_else_has_put_there_stays(tmp_path: Path) -> None:
    with OutputFolder(tmp_path / "new" / "deep"):
        (tmp_path / "new" / "note.txt").write_text("mine")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["note.txt"]


def test_of_two_at_once_the_later_loses_nothing_of_the_earlier(tmp_path: Path) -> None:
    with place_for_record(tmp_path / "a", overwrite=False) as place:
        RecordWriter(tmp_path / "a", "earlier").close(None)
        with pytest.raises(RecordError, match="exists already"):
            place.empty()
    assert (tmp_path / "a" / "scenario.toml").read_text() == "earlier"


def test_only_records_give_way_and_links_are_not_followed(tmp_path: Path) -> None:
    RecordWriter(tmp_path / "all" / "one", "").close(None)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "note.txt").write_text("mine")
    (tmp_path / "all" / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(RecordError, match="is not a run record"), place_for_record(tmp_path / "kept", overwrite=True):
        pass
    with place_for_record(tmp_path / "all", overwrite=True) as place:
        place.empty()
    assert not list((tmp_path / "all").iterdir())
    assert (tmp_path / "kept" / "note.txt").exists()


def test_new_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "a-2", "a-3"):
        assert new_folder("a") == Path("runs", name)
        (tmp_path / "runs" / name).mkdir(parents=True)
