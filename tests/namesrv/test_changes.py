"""Settings changed over the network: who wins at the next start, and what the file may hold."""

from pathlib import Path

import pytest

from orbitmq.errors import SettingError, StoreError
from orbitmq.namesrv.changed_settings import load_namesrv_settings, read_changes
from orbitmq.world.files import SystemFiles
from tests.namesrv.conftest import Run
from tests.namesrv.serving import name_server

FILES = SystemFiles()
CHANGED = {"orderMessageEnable": "true"}


def test_a_kept_change_wins_over_the_file_and_says_so() -> None:
    settings, notes = load_namesrv_settings(CHANGED, {"orderMessageEnable": "false"}, {})
    assert settings.order_message_enable
    assert notes == [
        "orderMessageEnable=true, changed over the network, wins over orderMessageEnable=false"
        " of the file"
    ]


def test_the_command_line_wins_over_a_kept_change() -> None:
    settings, notes = load_namesrv_settings(
        CHANGED, {"orderMessageEnable": "true"}, {"orderMessageEnable": "false"}
    )
    assert not settings.order_message_enable
    assert notes == []


def test_no_file_is_no_change(tmp_path: Path) -> None:
    assert read_changes(FILES, tmp_path / "namesrv.properties") == {}


@pytest.mark.parametrize("text", ["listenPort=1", "noSuchKey=1", "orderMessageEnable=\\u12"])
def test_a_file_with_anything_else_in_it_stops_the_start(
    run: Run, tmp_path: Path, text: str
) -> None:
    (tmp_path / "namesrv.properties").write_text(text)

    async def scenario() -> None:
        with pytest.raises(SettingError, match=r"namesrv\.properties"):
            async with name_server(tmp_path):
                pass

    run(scenario())


def test_a_folder_that_cannot_be_made_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def scenario() -> None:
        with pytest.raises(StoreError, match="file"):
            async with name_server(tmp_path / "file" / "namesrv"):
                pass

    run(scenario())
