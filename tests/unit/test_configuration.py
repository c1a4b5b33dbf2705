"""Settings: where each is found, what a wrong one is told, and what is shown of a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.configuration import Configuration, Loaded, load, settings
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a home without any file."""
    return Home(tmp_path)


def written(home: Home, text: str) -> Home:
    """Write the home's file of settings."""
    (home.path / "config.toml").write_text(text, "utf-8")
    return home


def refused(home: Home, **environ: str) -> str:
    """Return what is said when the settings are refused."""
    with pytest.raises(UsageError) as caught:
        load(home, environ=environ)
    return caught.value.detail


def test_without_anything_set_the_defaults_hold(home: Home) -> None:
    """Where no place has a setting its default holds, and says that it is one."""
    loaded = load(home, environ={})

    assert loaded.values == Configuration()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.environ() == {}


def test_a_flag_beats_the_environment_which_beats_the_file(home: Home) -> None:
    """Each setting comes from the strongest place that has it, and the place is named."""
    written(home, "port = 1111\nworkers = 3\n\nniceness = 5\n")

    loaded = load(
        home,
        flags={"port": "3333", "workers": None},
        environ={"AUTOCODE_PORT": "2222", "AUTOCODE_WORKERS": "4", "AUTOCODE_HOST": ""},
    )

    assert (loaded.values.port, loaded.values.workers, loaded.values.niceness) == (3333, 4, 5)
    assert loaded.values.host == "127.0.0.1"
    sources = [loaded.sources[name] for name in ("port", "workers", "niceness", "host")]
    assert sources == ["--port", "AUTOCODE_WORKERS", f"{home.path / 'config.toml'}:4", "default"]


def test_prefects_own_variables_count_where_ours_are_not_set(home: Home) -> None:
    """PREFECT_API_URL names the server unless AUTOCODE_PREFECT_API_URL does."""
    theirs = {"PREFECT_API_URL": "http://prefect.example/api/", "PREFECT_API_AUTH_STRING": "ada:pw"}

    alone = load(home, environ=theirs)
    both = load(home, environ={**theirs, "AUTOCODE_PREFECT_API_URL": "http://other.example/api"})

    assert alone.values.prefect_api_url == "http://prefect.example/api"
    assert alone.values.prefect_auth == "ada:pw"
    assert alone.sources["prefect_api_url"] == "PREFECT_API_URL"
    assert both.values.prefect_api_url == "http://other.example/api"


def test_what_was_loaded_can_be_handed_on_to_a_process(home: Home) -> None:
    """The variables that stand for loaded settings give the same settings again."""
    written(home, 'database_url = "postgresql://ada:pw@db.example/jobs"\ndrain_seconds = 2.5\n')
    first = load(home, flags={"workers": "7"}, environ={})

    second = load(Home(home.path / "elsewhere"), environ=first.environ())

    assert second.values == first.values
    assert first.values.database_url == "postgresql+psycopg://ada:pw@db.example/jobs"


def test_every_wrong_value_is_named_with_its_place_and_what_is_allowed(home: Home) -> None:
    """All mistakes are told at once: which setting, where, and what it takes."""
    file = written(home, '# mine\nport = 70000\nlog_level = "loud"\n').path / "config.toml"

    told = refused(home, AUTOCODE_WORKERS="many", AUTOCODE_HOST="300.1.2.3", AUTOCODE_DRAIN_SECONDS="nan")

    assert f"{file}:2: port can't be 70000; it takes a whole number from 0 to 65535" in told
    assert f"{file}:3: log_level can't be 'loud'; it takes debug, info, warning or error." in told
    assert "AUTOCODE_WORKERS: workers can't be 'many'; it takes a whole number from 1 to 64." in told
    assert "AUTOCODE_HOST: host can't be '300.1.2.3'" in told
    assert "AUTOCODE_DRAIN_SECONDS: drain_seconds can't be 'nan'" in told


@pytest.mark.parametrize(
    "text", ['port = "4280"', "port = true", "workers = 2.5", "host = 1", "[host]\nx = 1", "url = []"]
)
def test_a_value_of_the_file_must_have_the_right_type(home: Home, text: str) -> None:
    """TOML has types, so a number in quotes is a mistake that would surprise later."""
    written(home, text)

    told = refused(home)

    assert "config.toml:1: " in told
    assert "can't be" in told


def test_an_unknown_name_is_refused_with_the_one_that_was_meant(home: Home) -> None:
    """A setting that doesn't exist is no setting that is silently ignored."""
    file = written(home, "\nprot = 1\n").path / "config.toml"

    told = refused(home, AUTOCODE_DATABSE_URL="postgresql://x/y", AUTOCODE_XYZZY="44")

    assert f"{file}:2: no setting is called 'prot'; did you mean port." in told
    assert "No setting is called AUTOCODE_DATABSE_URL; did you mean AUTOCODE_DATABASE_URL." in told
    assert "No setting is called AUTOCODE_XYZZY (there are AUTOCODE_HOME, " in told


def test_a_file_that_is_no_toml_is_refused_with_the_line(home: Home) -> None:
    """What can't be read is told with the place that the parser names."""
    written(home, "port = 1\nworkers =\n")

    assert "line 2" in refused(home)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AUTOCODE_DATABASE_URL", "mysql://ada:hunter2@db/jobs"),
        ("AUTOCODE_DATABASE_URL", "postgresql://ada:hunter2@db"),
        ("AUTOCODE_PREFECT_API_URL", "ftp://ada:hunter2@x/api"),
        ("AUTOCODE_PREFECT_API_URL", "http://ada:hunter2@x/"),
        ("AUTOCODE_URL", "http://ada:hunter2@x:port"),
    ],
)
def test_a_wrong_address_is_refused_without_its_password(home: Home, variable: str, value: str) -> None:
    """An error may end in a log, so it doesn't repeat what may hold a password."""
    told = refused(home, **{variable: value})

    assert told.startswith(f"{variable}: ")
    assert "hunter2" not in told


@pytest.mark.parametrize("value", ["jobs.example/", "http://jobs.example", "a b", "jobs.example:80"])
def test_what_is_no_host_name_is_refused(home: Home, value: str) -> None:
    """The whole value has to be names, not just its end."""
    told = refused(home, AUTOCODE_HOSTS=value)

    assert "host names, separated by commas" in told


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_config_shows_everything_but_secrets(
    form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names each setting with its value and source, and no password or token."""
    monkeypatch.setenv("AUTOCODE_DATABASE_URL", "postgresql://ada:hunter2@db/jobs?password=hunter2")
    monkeypatch.setenv("AUTOCODE_TOKEN", "hunter2")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "ada:hunter2")

    status = command.run(["config", *form])

    shown = capsys.readouterr().out
    assert status == command.DONE
    assert "hunter2" not in shown
    assert all(setting.name in shown and setting.description in shown for setting in settings())
    if form:
        found = {each["name"]: each for each in json.loads(shown)["settings"]}
        assert found["database_url"]["value"] == "postgresql+psycopg://ada:***@db/jobs?password=***"
        assert found["prefect_auth"]["source"] == "PREFECT_API_AUTH_STRING"


def test_config_refuses_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong setting is a usage error: status 2, and nothing on stdout."""
    monkeypatch.setenv("AUTOCODE_PORT", "http")

    status = command.run(["config"])

    shown = capsys.readouterr()
    assert status == command.USAGE
    assert shown.out == ""
    assert "AUTOCODE_PORT: port can't be 'http'" in shown.err


def test_the_default_of_each_setting_is_allowed() -> None:
    """No default would be refused if somebody wrote it down."""
    defaults = {
        setting.variables[0]: str(setting.default) for setting in settings() if setting.default is not None
    }

    loaded: Loaded = load(Home(Path("nowhere")), environ=defaults)

    assert loaded.values == Configuration()
