"""Bad input to the federation's commands: one sentence, exit code 2, nothing made."""

import numpy as np
import pytest

from helpers.commands import truthfl
from helpers.small_jobs import small_job_file
from truthfl.federation.deployed.invitations import Invitation
from truthfl.ledger.signing import new_key, public_line, write_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("commands")
    small_job_file(made)
    np.savez(made / "ada.npz", images=np.zeros((3, 8, 8), np.uint8), labels=np.array([0, 1, 2]))
    np.savez(made / "empty.npz", pictures=np.zeros(3))
    np.savez(made / "words.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.array(["cat", "dog"]))
    (made / "junk.npz").write_text("junk")
    write_key(new_key(), made / "ada")
    invited = Invitation("127.0.0.1:1", "Ada", "code", "2999-01-01T00:00:00+00:00", public_line(new_key()))
    (made / "Ada.invitation").write_text(invited.text())
    (made / "junk").write_text("junk")
    return made


JOIN = ["join", "--name", "Ada", "--key", "ada", "--home", "home"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["serve", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["serve", "job.toml", "--port", "99999"], "port is 99999; it must be from 1 to 65535."),
        (["serve", "job.toml", "--yes", "--keys", "keys"], "server.crt cannot be read"),
        (["serve", "job.toml", "--participants", "nowhere"], "which is no folder"),
        (["serve", "job.toml", "--yes", "--host", "0.0.0.0", "--out", "served"], "needs TLS"),
        (["serve", "job.toml", "--yes", "--linger", "-1"], "linger is -1; it must be a number of minutes from 0"),
        (["approve", "--out", "nowhere"], "no server in nowhere waits for approval now"),
        (["approve", "--yes", "--decline"], "--yes and --decline are both given"),
        (["serve", "job.toml", "--seed", "-1"], "seed is -1"),
        ([*JOIN, "--server", "nohost", "--data", "ada.npz", "--accept"], "it must be HOST:PORT"),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "junk", "--accept"], "junk is of no known kind"),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "empty.npz", "--accept"], "has no array 'images'"),
        (
            [*JOIN, "--server", "127.0.0.1:1", "--data", "gone.npz", "--accept"],
            "gone.npz does not exist; name",
        ),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "words.npz", "--accept"], "must be whole numbers"),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "junk.npz", "--accept"], "junk.npz is not an .npz file"),
        ([*JOIN, "--server", "http://127.0.0.1:1", "--data", "ada.npz", "--accept"], "it must be HOST:PORT"),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "ada.npz", "--accept", "--root", "junk"], "junk"),
        ([*JOIN, "--name", " ", "--server", "127.0.0.1:1", "--data", "ada.npz", "--accept"], "name is empty"),
        ([*JOIN, "--server", "127.0.0.1:1", "--data", "ada.npz", "--no-page"], "there is no terminal to ask you at"),
        (
            [*JOIN, "--server", "127.0.0.1:1", "--data", "ada.npz", "--accept", "--sample-cost", "nan"],
            "sample-cost is nan",
        ),
        (
            ["join", "Ada.invitation", "--data", "ada.npz", "--accept", "--accept-if-it-pays", "--home", "none"],
            "--accept and --accept-if-it-pays are both given",
        ),
        (["join", "Ada.invitation", "--data", "ada.npz", "--no-page", "--home", "none"], "there is no terminal"),
        ([*JOIN[:4], "junk", "--server", "127.0.0.1:1", "--data", "ada.npz", "--accept"], "junk is no private key"),
        (["keys", "participant", "../x"], "is no name for a key"),
        (["ledger", "check", "junk"], "it is no SQLite file"),
        (["ledger", "show", "gone.db"], "there is no ledger gone.db"),
        (["settle", "gone.db"], "there is no ledger gone.db"),
        (["run", "job.toml", "--ledger", "mysql://x"], "a ledger of the kind 'mysql' is not kept"),
    ],
)
def test_bad_input_is_one_sentence(folder, words, told):
    done = truthfl(*words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert done.stderr.startswith("truthfl: ")
    assert "Traceback" not in done.stderr
    assert not (folder / "gone.db").exists()
    assert not (folder / "none").exists(), "no key is made for options that contradict each other"
