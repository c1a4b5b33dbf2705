"""``autocode-jobs config``: every setting, where it comes from, what it does."""

from __future__ import annotations

import os
from typing import Any

from rich.text import Text

from autocode.jobs.cli.screen import Screen, visible
from autocode.jobs.configuration import FILE_NAME, OTHER_VARIABLES, load, settings
from autocode.jobs.settings import Home

__all__ = ["config"]


def config(*, json: bool) -> int:
    """Print every setting.

    Raises:
        UsageError: a setting is wrong.
    """
    screen = Screen(json_mode=json)
    home = Home.from_environment()
    loaded = load(home)
    found: list[dict[str, Any]] = [
        {
            "name": setting.name,
            "value": setting.shown(getattr(loaded.values, setting.name)),
            "source": loaded.sources[setting.name],
            "variables": list(setting.variables),
            "flag": setting.flag or None,
            "allowed": setting.allowed,
            "description": setting.description,
        }
        for setting in settings()
    ]
    if json:
        screen.emit({"home": str(home.path), "file": str(home.path / FILE_NAME), "settings": found})
        return 0
    for each in found:
        screen.say(
            Text(str(each["name"]), style="bold")
            .append(Text(f" = {visible(str(each['value']))}", style="default"))
            .append(Text(f"  ({visible(str(each['source']))})", style="dim"))
        )
        screen.say(f"    {each['description']}")
        ways = ", ".join([*each["variables"], *([each["flag"]] if each["flag"] else [])])
        screen.say(f"    {ways}: {each['allowed']}")
    screen.say()
    screen.say(f"The file is {home.path / FILE_NAME}. Read from the environment alone:")
    for name, description in OTHER_VARIABLES.items():
        value = str(home.path) if name == "AUTOCODE_HOME" else os.environ.get(name) or "-"
        screen.say(f"  {name} = {value}: {description}")
    return 0
