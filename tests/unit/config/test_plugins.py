"""What an installed package may add, and how a broken one is reported."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from neo.config import plugins
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.plugins import Plugin, load_plugins
from neo.config.purpose import Purpose
from neo.config.store import register
from neo.errors import NeoError


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Return a function that installs the package ``acme_neo`` with the given source."""

    def installed(source: str) -> None:
        package = tmp_path / "acme_neo"
        (package / "conf" / "hardware").mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        (package / "conf" / "__init__.py").write_text("")
        (package / "conf" / "hardware" / "acmebox.yaml").write_text(
            "name: AcmeBox\naccelerators_per_node: 4\naccelerator:\n  hbm:\n    capacity: 16GiB\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        entry = EntryPoint("acme", "acme_neo:plugin", plugins.ENTRY_POINT_GROUP)
        monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
        load_plugins.cache_clear()

    yield installed
    load_plugins.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "acme_neo"]:
        del sys.modules[name]


def _found(*overrides: str) -> list[str]:
    register()
    found = check_command_line(overrides, ConfigSource(), purpose=Purpose.PLAN, multirun=False)
    return [str(finding) for finding in found]


def test_a_plugin_adds_choices(install: Callable[[str], None]) -> None:
    install("from neo.config.plugins import Plugin\ndef plugin():\n    return Plugin(config_package='acme_neo.conf')\n")
    assert load_plugins() == (Plugin("acme_neo.conf"),)
    assert _found("hardware=acmebox") == []
    assert _found("hardware=acmebax")[0].startswith(
        "hardware: 'acmebax' is not a choice of hardware; did you mean 'acmebox'? Choices: acmebox, dgx_a100"
    )


def test_a_plugin_that_cannot_be_loaded_is_named(install: Callable[[str], None]) -> None:
    install("raise RuntimeError('needs acme 2')")
    with pytest.raises(NeoError) as caught:
        load_plugins()
    assert str(caught.value) == (
        "plugin 'acme' of an unknown package (acme_neo:plugin) cannot be loaded: needs acme 2; "
        "update or uninstall that package"
    )


def test_a_plugin_that_returns_something_else_is_named(install: Callable[[str], None]) -> None:
    install("def plugin():\n    return 3\n")
    with pytest.raises(NeoError, match=r"returned int; it has to return a neo\.config\.plugins\.Plugin"):
        load_plugins()
