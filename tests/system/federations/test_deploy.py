"""What is in deploy/: the systemd unit, the container, the health check, and the commands of its guide."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.commands import truthfl
from helpers.databases import KEY, opening
from helpers.small_jobs import small_job_file
from truthfl.certificates import make_certificates
from truthfl.cli.app import COMMANDS
from truthfl.errors import BAD_INPUT, FAILED, INTERRUPTED, SERVICE_FAILED
from truthfl.federation.deployed.job_server import open_job_server
from truthfl.federation.deployed.node_connection import HEALTH
from truthfl.ledger.book import open_ledger
from truthfl.ledger.signing import new_key, write_key

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "truthfl-serve@.service"
MOST_EXPOSURE = 15  # tenths; systemd calls up to 2 OK, and a service without any such setting 9.6
SECONDS = 120


def unit_settings():
    """The settings of the unit: (section, name) with all values, continued lines joined."""
    found, section = {}, ""
    for line in UNIT.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault((section, name), []).append(" ".join(value.split()))
    return found


def options_of(command):
    done = truthfl(command, "--help")
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def test_systemd_takes_the_unit(tmp_path):
    systemd = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not here")
    program = unit_settings()["Service", "ExecStart"][0].split()[0]
    copy = tmp_path / UNIT.name  # systemd looks whether the program is there
    copy.write_text(UNIT.read_text().replace(program, sys.executable))
    instance = tmp_path / UNIT.name.replace("@", "@digits")
    shutil.copy(copy, instance)
    for path in (copy, instance):
        done = subprocess.run([systemd, "verify", path], capture_output=True, text=True, timeout=SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
    words = [systemd, "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", "--no-pager", UNIT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_starts_again_what_starting_again_mends():
    settings = unit_settings()
    assert settings["Service", "Restart"] == ["on-failure"]
    not_again = {int(code) for code in settings["Service", "RestartPreventExitStatus"][0].split()}
    assert not_again == {FAILED, BAD_INPUT}
    assert SERVICE_FAILED not in not_again
    assert settings["Service", "SuccessExitStatus"] == [str(INTERRUPTED)]
    assert settings["Service", "KillSignal"] == ["SIGINT"]
    assert settings["Service", "DynamicUser"] == ["yes"]


def test_the_unit_gives_words_that_serve_knows():
    settings = unit_settings()
    _, command, *words = shlex.split(settings["Service", "ExecStart"][0])
    assert command == "serve"
    assert "--yes" not in words, "nothing is offered before the operator has seen the plan"
    assert {word for word in words if word.startswith("--")} <= options_of("serve")
    variables = set(re.findall(r"\$\{?([A-Z]+)\b(?!_)", " ".join(words)))
    given = set(re.findall(r"^([A-Z]+)=", (DEPLOY / "job.env").read_text(), flags=re.MULTILINE))
    assert variables == given
    credentials = {one.partition(":")[0] for one in settings["Service", "LoadCredential"]}
    assert credentials == {"operator", "operator.pub", "ca.crt", "server.crt", "server.key"}


def test_the_server_has_all_it_needs_in_what_the_unit_hands_it(tmp_path):
    """The credentials are what `truthfl keys server` writes, no more and no less."""
    done = truthfl("keys", "server", "--out", tmp_path)
    assert done.returncode == 0
    credentials = {one.partition(":")[0] for one in unit_settings()["Service", "LoadCredential"]}
    assert {path.name for path in tmp_path.iterdir()} == credentials | {".gitignore"}


def instructions():
    """The Containerfile's instructions with their words, by stage."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages = [[]]
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, " ".join(rest.split())))
    return stages


def is_ignored(path):
    """As builders read .containerignore: the last rule that fits decides."""
    ignored = False
    for line in (ROOT / ".containerignore").read_text().splitlines():
        rule = line.strip()
        if rule and not rule.startswith("#"):
            pattern = rule.lstrip("!").removeprefix("**/")
            parts = [path, *map(str, Path(path).parents)] if "/" in pattern or not rule.startswith("**/") else []
            parts += [Path(path).name] if rule.startswith("**/") or pattern == "*" else []
            if any(fnmatch.fnmatch(part, pattern) for part in parts if part != "."):
                ignored = not rule.startswith("!")
    return ignored


def test_the_container_is_small_without_root_and_without_secrets():
    before, build, final = instructions()
    assert [name for name, _ in before] == ["ARG"]
    names = [name for name, _ in final]
    assert all(name != "ADD" for stage in (build, final) for name, _ in stage)
    assert final[0] == ("FROM", "${PYTHON}")
    assert {"USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL"} <= set(names)
    user = dict(final)["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert names.index("USER") < names.index("ENTRYPOINT") < names.index("CMD")
    assert "RUN" not in names[names.index("USER") :]
    assert dict(final)["STOPSIGNAL"] == "SIGINT"
    assert "gcc" not in " ".join(rest for _, rest in final)
    installs = [part for name, rest in build if name == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert installs
    assert all("--constraint constraints.txt" in one for one in installs)


def test_the_container_copies_what_is_there_and_allowed():
    copied = [rest for stage in instructions()[1:] for name, rest in stage if name == "COPY"]
    sources = [word for rest in copied if not rest.startswith("--from") for word in rest.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    there = [str(path.relative_to(ROOT)) for path in (*ROOT.iterdir(), *DEPLOY.iterdir())]
    assert {name for name in there if not is_ignored(name)} == {source.removeprefix("./") for source in sources}
    for secret in ("keys/operator", "served/ledger.db", "people/Ada", ".git/config", "secrets.json", "src/a.so"):
        assert is_ignored(secret), secret
    assert (ROOT / ".dockerignore").read_bytes() == (ROOT / ".containerignore").read_bytes()


def test_the_container_runs_what_the_project_has():
    final = dict(instructions()[-1])
    assert json.loads(final["ENTRYPOINT"]) == ["truthfl"]
    command, *words = json.loads(final["CMD"])
    assert command in COMMANDS
    assert "--yes" not in words, "nothing is offered before the operator has seen the plan"
    assert {word for word in words if word.startswith("--")} <= options_of(command)
    port = words[words.index("--port") + 1]
    assert final["EXPOSE"] == port
    check = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    assert check[1] == "/opt/truthfl/health.py"
    assert check[2] == f"https://127.0.0.1:{port}{HEALTH}"
    assert check[3] == f"{words[words.index('--keys') + 1]}/ca.crt"
    assert final["VOLUME"] == words[words.index("--out") + 1]


def builder():
    """A program that builds images and has an engine; None if there is none."""
    for name, asking in (("buildah", "info"), ("podman", "info"), ("docker", "info")):
        if shutil.which(name) and subprocess.run([name, asking], capture_output=True, timeout=60).returncode == 0:
            return name
    return None


def test_the_image_is_built_where_it_can_be():
    name = builder() or pytest.skip("neither buildah nor podman nor docker has an engine here")
    words = [name, "build", "--file", "deploy/Containerfile", "--tag", "truthfl-test", "."]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_health_check_asks_a_server_with_our_certificate_alone(tmp_path):
    make_certificates(tmp_path / "keys")
    make_certificates(tmp_path / "others")

    def code(port, root):
        words = [sys.executable, DEPLOY / "health.py", f"https://127.0.0.1:{port}{HEALTH}", root]
        return subprocess.run(words, capture_output=True, timeout=SECONDS).returncode

    with open_job_server("127.0.0.1", 0, tmp_path / "keys") as server:
        assert code(server.port, tmp_path / "keys" / "ca.crt") == 0
        assert code(server.port, tmp_path / "others" / "ca.crt") == 1
    assert code(server.port, tmp_path / "keys" / "ca.crt") == 1


def guide_commands():
    """The commands of the guide, as words."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (DEPLOY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line.removeprefix("$ ")) for block in blocks for line in block.splitlines()]


def test_the_guides_commands_name_what_is_there():
    for words in guide_commands():
        for word in words:
            if word.startswith("deploy/") or word in ("constraints.txt",):
                assert (ROOT / word).exists(), word
        if words[0] == "podman" and words[1] == "run":
            mounts = [value.split(":")[1] for option, value in pairwise(words) if option == "--volume"]
            final = dict(instructions()[-1])
            assert final["VOLUME"] in mounts
            assert {"/job/job.toml", "/keys", "/people"} <= set(mounts)
            assert f"{final['EXPOSE']}:{final['EXPOSE']}" in words


def test_the_guides_backup_restore_and_anchor(tmp_path):
    """The guide's own commands; an anchor that is younger than the backup shows what was lost."""
    job = small_job_file(tmp_path)
    (tmp_path / "people").mkdir()
    write_key(new_key(), tmp_path / "people" / "Ada")
    truthfl_here = partial(truthfl, cwd=tmp_path)
    assert truthfl_here("run", job, "--out", "served").returncode == 0
    (tmp_path / "keys").mkdir()
    for name in ("operator", "operator.pub"):
        shutil.copy(tmp_path / "served" / name, tmp_path / "keys")
    commands = [words[1:] for words in guide_commands() if words[0] == "truthfl"]
    assert [words[0] for words in commands] == ["approve", "backup", "ledger", "restore", "ledger"]
    assert {word for word in commands[0] if word.startswith("--")} <= options_of("approve")
    del commands[0]
    for words in commands:
        done = truthfl_here(*words)
        assert done.returncode == 0, done.stderr + done.stdout
    assert "the anchor holds" in done.stdout
    with open_ledger(tmp_path / "served" / "ledger.db", KEY) as ledger:
        ledger.append("another", "job", "job", opening())
        rows = len(ledger.rows())
    assert truthfl_here(*commands[1]).returncode == 0
    done = truthfl_here(*commands[3])
    assert done.returncode == FAILED
    assert f"is of entry {rows}; its last rows are gone" in done.stdout
