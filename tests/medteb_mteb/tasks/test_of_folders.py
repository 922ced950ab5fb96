from __future__ import annotations

import pytest

from medteb_mteb.folders import FolderError
from medteb_mteb.tasks.of_folders import tasks_from_folders


def test_one_name_for_two_folders_is_refused(make_folder):
    folders = [make_folder("STS", "a/same"), make_folder("STS", "b/same")]
    with pytest.raises(FolderError, match="same task name 'same'"):
        tasks_from_folders(folders)
