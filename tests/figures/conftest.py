"""All nine figures, made once for the tests of this folder."""

import pytest

from psofed.paper.model import Quality, Reproduction
from psofed.paper.reproduce import reproduce, save_reproduction

ONE_WORKER = True  # the files of this folder share `reproduction`


@pytest.fixture(scope="session")
def reproduction() -> Reproduction:
    return reproduce([], Quality(quick=True))


@pytest.fixture(scope="session")
def saved(reproduction, tmp_path_factory):
    """The folder, the claims and the page of the saved figures."""
    folder = tmp_path_factory.mktemp("reproduction")
    claims, page = save_reproduction(reproduction, folder)
    return folder, claims, page
