"""The command line as people use it: good jobs, bad jobs, JSON, help. Errors are one sentence and an exit code."""

import json
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import truthfl as run
from truthfl import lceme, optimal_batch_sizes
from truthfl.cli import app
from truthfl.job import read_job

EXAMPLE_FILE = Path(str(resources.files("truthfl"))) / "examples" / "ten_clients.toml"
EXAMPLE = EXAMPLE_FILE.read_text()


def changed(tmp_path, old, new):
    assert old in EXAMPLE
    path = tmp_path / "job.toml"
    path.write_text(EXAMPLE.replace(old, new))
    return path


def test_plan_prints_every_client_and_the_total():
    done = run("plan", EXAMPLE_FILE)
    assert done.returncode == 0
    assert done.stderr == ""
    for name in read_job(EXAMPLE_FILE).clients.name:
        assert f" {name} " in done.stdout
    assert "formula and search agree" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_plan_json_is_the_librarys_result():
    told = json.loads(run("plan", EXAMPLE_FILE, "--json").stdout)
    job = read_job(str(EXAMPLE_FILE))
    model = job.loss_model()
    batches = optimal_batch_sizes(job.clients, model, job.training, loss_value=job.server.loss_value)
    contract = lceme(job.clients, model, job.training, batches)
    assert told["clients"]["batch_size"] == batches.tolist()
    assert told["clients"]["slope"] == contract.slope.tolist()
    assert told["clients"]["expected_payoff"] == pytest.approx([0.0] * 10, abs=1e-9)
    assert told["confirmed_by_search"] is True


def test_verify_has_one_answer_per_rule_and_only_lceme_withstands():
    told = {answer["rule"]: answer for answer in json.loads(run("verify", EXAMPLE_FILE, "--json").stdout)}
    assert list(told) == ["lceme", "flat", "per claimed sample", "leave-one-out", "shapley share"]
    assert told["lceme"]["gain"] == 0.0
    assert all(answer["regret"] > 0.5 for rule, answer in told.items() if rule != "lceme")
    assert {"elicited_effort", "regret_low", "regret_high", "worst_deviation"} <= set(told["flat"])
    assert told["flat"]["worst_deviation"]["client"] == "client 9 (Jun)"
    assert "does lying pay" in run("verify", EXAMPLE_FILE).stdout.lower()


def test_errata_prints_all_six():
    told = json.loads(run("errata", "--json").stdout)
    assert [e["number"] for e in told] == [1, 2, 3, 4, 5, 6]
    assert [round(e["printed"], 4) for e in told[:3]] == [1.0, 0.8083, 0.01]
    assert [round(e["correct"], 4) for e in told[:2]] == [3.1623, 1.5874]
    assert all(e["printed"] != e["correct"] for e in told)
    assert "45.0" in run("errata").stdout


def test_a_budget_in_the_job_is_kept(tmp_path):
    path = changed(tmp_path, "loss_value = 3000.0", "loss_value = 3000.0\nbudget = 900.0")
    told = json.loads(run("plan", path, "--json").stdout)
    assert told["total_pay"] <= 900.0 + 1e-9
    assert told["total_pay"] > 899.0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("rounds = 100", "rounds = 0", "[training] rounds is 0; it must be at least 1."),
        ("rounds = 100", 'rounds = "many"', "[training] rounds is 'many'; it must be a whole number."),
        ("rounds = 100", "", "[training] lacks rounds."),
        (
            "rounds = 100",
            "roundz = 100",
            "[training] has no field 'roundz'; its fields are rounds, local_steps, step_size, momentum.",
        ),
        (
            "step_size = 0.05",
            "step_size = 0.9",
            "step_size is 0.9; paper_bound holds for a step size up to 1/(2 smoothness) = 0.5.",
        ),
        (
            "[training]",
            "[trainin]",
            "is no section of a job; the sections are clients, training, constants, server, contract, data, model, ",
        ),
        ("[training]", "[training", "is not valid TOML"),
        ("0.14, 0.14, 0.06", "0.14, 0.14, 0.07", "[clients] weight sums to 1.01 over 10 clients; it must sum to 1."),
        (
            "36, 300]",
            "36, nan]",
            "[clients] labeling_cost of client 9 (Jun) is nan; it must be a positive finite number.",
        ),
        ("0.001, 0.002]", "-0.001, 0.002]", "[clients] sample_cost of client 8 (Ivo) is -0.001; it must be"),
        ('"paper"', '"tight"', "[server] bound is 'tight'; it must be one of 'paper', 'sound'."),
        ("loss_value = 3000.0", "loss_value = inf", "[server] loss_value is inf; it must be a positive finite number."),
        ("loss_value = 3000.0", "budget = 10.0", "budget is 10; labeling and the smallest truthful batches alone cost"),
        (
            "360, 600]",
            "360, 20]",
            "client 9 (Jun): needs 55 samples, dataset_size is 20, feasible with a labeling_cost of at most",
        ),
    ],
)
def test_bad_jobs_get_one_sentence(tmp_path, old, new, told):
    done = run("plan", changed(tmp_path, old, new))
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, "cannot be read: No such file or directory."),
        (lambda path: path.mkdir(), "cannot be read: Is a directory."),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read: it is not UTF-8 text."),
        (lambda path: path.write_text("clients = 3"), "clients is 3; it must be a section, [clients]."),
        (lambda path: path.write_text(""), "[clients] lacks weight, gradient_variance, sample_cost, labeling_cost"),
    ],
)
def test_files_that_are_no_jobs(tmp_path, make, told):
    path = tmp_path / "job.toml"
    make(path)
    done = run("plan", path)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("rounds = 100", "rounds = true", "[training] rounds is True; it must be a whole number."),
        ("rounds = 100", f"rounds = {'9' * 400}", "[training] rounds is a number of"),
        ("rounds = 100", f"rounds = {'9' * 5000}", "is not valid TOML"),
        ("rounds = 100", "rounds = " + "[" * 50_000, "is not valid TOML"),
        ("loss_variance = 0.5", 'loss_variance = "0.5"', "[server] loss_variance is '0.5'; it must be a number."),
        (
            "loss_variance = 0.5",
            "loss_variance = 1e308",
            "[server] loss_variance is 1e+308; it must be a number from 0 to",
        ),
        ('bound = "paper"', 'bound = ["paper"]', "[server] bound is ['paper']; it must be one of 'paper', 'sound'."),
        ("initial_distance = 1.0", "initial_distance = 1e308", "[constants] initial_distance is 1e+308; it must be"),
        (
            "dataset_size = [600",
            "dataset_size = [[1, 2], [3]]\nheterogeneity = [600",
            "[clients] dataset_size is [[1, 2], [3]]",
        ),
    ],
)
def test_worse_jobs_get_one_sentence_too(tmp_path, old, new, told):
    done = run("plan", changed(tmp_path, old, new))
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("bound", [0, 0.01, 0.05])
def test_verify_answers_for_every_rule_even_where_one_cannot_pay(tmp_path, bound):
    path = changed(tmp_path, "gradient_bound = 4.0", f"gradient_bound = {bound}")
    done = run("verify", path, "--json")
    assert done.stderr == ""
    told = {answer["rule"]: answer for answer in json.loads(done.stdout)}
    assert told["lceme"]["gain"] == 0.0
    assert told["flat"]["gain"] > 100
    assert told["leave-one-out"]["gain"] is not None or told["leave-one-out"]["evidence"].startswith("cannot pay")
    assert run("verify", path).returncode == 0


def test_a_terminal_without_our_letters_gets_others():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "truthfl", "plan", EXAMPLE_FILE]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0
    assert done.stderr == b""


def test_help_shows_all_commands_and_imports_none():
    folder = Path(app.__file__).parent
    modules = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("[!_]*.py")}
    shared = {
        "app",
        "contracts",
        "entry",
        "output",
        *(f"participant.{one}" for one in ("pages", "participation", "phone")),
    }
    assert {module for module, _ in app.COMMANDS.values()} == modules - shared
    shown = run("--help").stdout
    assert [name for name in app.COMMANDS if f" {name} " not in shown] == []
    assert "3 network, disk, a port or a process failed" in " ".join(shown.split())
    code = "import sys\nfrom truthfl.cli.app import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.split() if name.startswith(("truthfl", "numpy"))}
    assert loaded == {f"truthfl{name}" for name in ("", ".cli", ".cli.app", ".errors", ".texts")}


@pytest.mark.parametrize("name", app.COMMANDS)
def test_the_list_has_the_first_sentence_of_each_commands_help(name):
    told = " ".join(app.load_command(name).help.split())
    assert re.match(r".*?[.?](?= |$)", told)[0] == app.COMMANDS[name][1]


@pytest.mark.parametrize(
    "command", ["run", "label", "plan", "verify", "reproduce", "serve", "join", "pause", "end", "errata"]
)
def test_help_has_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"Example: truthfl {command}" in done.stdout


def test_unknown_commands_and_options_are_refused():
    done = run("paln")
    assert done.returncode == 2
    assert done.stderr == "truthfl: there is no command 'paln'; did you mean plan? truthfl -h shows them all.\n"
    assert run("plan", "--jsno").returncode == 2
    assert run("--version").stdout.startswith("truthfl ")


def test_many_clients_are_planned_and_the_table_stays_short(tmp_path):
    count = 1000
    path = tmp_path / "job.toml"
    path.write_text(
        EXAMPLE[: EXAMPLE.index("[clients]")]
        + f"[clients]\nweight = {np.full(count, 1 / count).tolist()}\ngradient_variance = 4000.0\nsample_cost = 0.002\n"
        + "labeling_cost = 0.01\ndataset_size = 600\n"
    )
    done = run("plan", path)
    assert done.returncode == 0
    assert "… 960 more" in done.stdout
    assert len(done.stdout.splitlines()) < 60
