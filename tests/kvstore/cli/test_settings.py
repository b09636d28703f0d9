"""The settings of a node: their sources, which source overrides which, and the errors for wrong values."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kvstore.cli.settings_document import render_markdown
from kvstore.cli.settings_sources import SettingsError, add_flags, from_arguments, load
from kvstore.node.config import PRESETS, NodeConfig
from transport.udp import BroadcastMode, MulticastMode, PeersMode

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
NEEDED = {"node": "a", "roster": "a,b,c", "data": "/d"}


def written(directory: Path, content: str) -> Path:
    path = directory / "node.toml"
    path.write_text(content)
    return path


def parsed(*arguments: str, environment: dict[str, str] | None = None) -> NodeConfig:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_arguments(parser.parse_args(arguments), environment or {})


def test_defaults_are_enough_but_for_who_and_where() -> None:
    settings = load(NEEDED, {})
    assert (settings.node, settings.data, settings.cluster) == ("a", Path("/d"), "corelkv")
    assert dict(settings.roster.weights) == {"a": 1, "b": 1, "c": 1}
    assert settings.http == ("127.0.0.1", 8001)
    assert settings.mode == BroadcastMode(("127.255.255.255", 7400))
    assert (settings.journal, settings.chaos, settings.bootstrap) == (True, False, False)
    assert (settings.preset, settings.transport) == ("loopback", PRESETS["loopback"].transport)


def test_flags_override_variables_override_the_file_overrides_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, 'cluster = "file"\nhttp = "1.1.1.1:1"\nlog_level = "debug"\n')
    environment = {"CORELKV_CLUSTER": "variable", "CORELKV_HTTP": "2.2.2.2:2"}
    settings = load({**NEEDED, "cluster": "flag"}, environment, file)
    assert (settings.cluster, settings.http, settings.log_level) == ("flag", ("2.2.2.2", 2), "debug")


def test_the_preset_is_that_of_the_network_unless_somebody_names_one() -> None:
    lan = load({**NEEDED, "broadcast": "10.0.0.255:7400"}, {})
    assert (lan.preset, lan.transport) == ("lan", PRESETS["lan"].transport)
    named = load({**NEEDED, "preset": "lan"}, {})
    assert (named.preset, named.transport.datagram_bytes_max) == ("lan", 1_400)
    changed = load(NEEDED, {}, sets=("transport.heartbeat_ms=50",))
    assert (changed.transport.heartbeat_ms, changed.transport.datagram_bytes_max) == (50.0, 32_768)
    with pytest.raises(SettingsError, match=r"--preset: 'wan' is not lan\|loopback"):
        load({**NEEDED, "preset": "wan"}, {})


def test_bounds_of_two_layers_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"--set log.body_bytes_max=1000 is 1,000: a message of the log must"):
        load(NEEDED, {}, sets=("log.body_bytes_max=1000",))


def test_a_file_can_say_everything(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        node = "a"
        roster = { a = 2, b = 1 }
        data = "/var/lib/corelkv"
        peers = ["10.0.0.1:7400", "10.0.0.2:7400"]
        bind = "10.0.0.1:7400"
        chaos = true
        journal = false
        urls = { a = "http://10.0.0.1:8001/" }
        [transport]
        datagram_bytes_max = 9000
        [membership]
        suspect_after_ms = 800
        [log]
        debug_invariants = true
        [store]
        checkpoint_ms = 250.5
        """,
    )
    settings = load({}, {}, file)
    assert dict(settings.roster.weights) == {"a": 2, "b": 1}
    assert settings.mode == PeersMode(("10.0.0.1", 7400), (("10.0.0.1", 7400), ("10.0.0.2", 7400)))
    assert (settings.chaos, settings.journal) == (True, False)
    assert dict(settings.urls) == {"a": "http://10.0.0.1:8001"}
    assert settings.transport.datagram_bytes_max == 9000
    assert settings.membership.suspect_after_ms == 800.0
    assert settings.log.debug_invariants
    assert settings.store.checkpoint_ms == 250.5


def test_bounds_of_layers_come_from_variables_and_flags_too(tmp_path: Path) -> None:
    file = written(tmp_path, "[store]\nheld_max = 1\nbatch_writes_max = 1\ncheckpoint_ms = 1\n")
    environment = {"CORELKV_STORE_HELD_MAX": "2", "CORELKV_STORE_BATCH_WRITES_MAX": "2"}
    store = load(NEEDED, environment, file, ("store.held_max=3",)).store
    assert (store.held_max, store.batch_writes_max, store.checkpoint_ms) == (3, 2, 1.0)


def test_the_highest_source_says_how_to_reach_the_others(tmp_path: Path) -> None:
    file = written(tmp_path, 'peers = "1.1.1.1:1"\nbind = "1.1.1.1:1"\n')
    assert load(NEEDED, {}, file).mode == PeersMode(("1.1.1.1", 1), (("1.1.1.1", 1),))
    variable = {"CORELKV_MULTICAST": "239.0.0.1:7400"}
    assert load(NEEDED, variable, file).mode == MulticastMode(("239.0.0.1", 7400))
    flags = {**NEEDED, "broadcast": "10.255.255.255:1"}
    assert load(flags, variable, file).mode == BroadcastMode(("10.255.255.255", 1))


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    file = written(tmp_path, 'node = "b"\nroster = ["a", "b"]\ndata = "/x"')
    assert parsed(environment={"CORELKV_CONFIG": str(file)}).node == "b"
    assert parsed("--config", str(file), "--node", "a").node == "a"


def test_switches_have_both_flags() -> None:
    arguments = ("--node", "a", "--roster", "a", "--data", "/d")
    assert parsed(*arguments, "--chaos", environment={"CORELKV_CHAOS": "off"}).chaos
    assert not parsed(*arguments, "--no-journal", environment={"CORELKV_JOURNAL": "on"}).journal


def test_variables_of_others_are_ignored() -> None:
    assert load(NEEDED, {"CORELKV_PORT": "tcp://10.0.0.1:80", "CORELKV_URL": "http://x"}).node == "a"


@pytest.mark.parametrize(
    ("flags", "environment", "sentence"),
    [
        ({"node": "x"}, {}, "--node is x, which is not in the roster: a, b, c"),
        ({"roster": "b,c"}, {"CORELKV_NODE": "a"}, "is a, which is not in the roster: b, c"),
        ({"roster": "a,a"}, {}, "--roster: 'a,a' .* a is there twice"),
        ({"roster": "a=x"}, {}, "--roster: .* the weight of a is a whole number, not 'x'"),
        ({"roster": "a=0"}, {}, "--roster: .* some weight"),
        ({"roster": "a,,b"}, {}, "--roster: .* a name has 1 to 64"),
        ({"http": "nonsense"}, {}, "--http: 'nonsense' is not HOST:PORT"),
        ({}, {"CORELKV_HTTP": "1.1.1.1:99999"}, "CORELKV_HTTP: '1.1.1.1:99999' is not HOST:PORT"),
        ({}, {"CORELKV_CHAOS": "perhaps"}, "CORELKV_CHAOS: 'perhaps' is not true|false"),
        ({"log_level": "loud"}, {}, "--log-level: .* one of debug, info, warning, error"),
        ({"urls": "a=localhost"}, {}, "--urls: .* begins with http"),
        ({"urls": "d=http://x"}, {}, "--urls names d, which is not in the roster"),
        ({"node_urls": "d=http://x"}, {}, "--node-urls names d, which is not in the roster"),
        ({"node_urls": "a=https://me:word@x"}, {}, "--node-urls: .* has a user or a password"),
        ({"peers": "1.1.1.1:1"}, {}, "--peers needs bind"),
        ({}, {"CORELKV_BIND": "1.1.1.1:1"}, "CORELKV_BIND is for peers only"),
        ({"broadcast": "1.1.1.1:1", "multicast": "2.2.2.2:2"}, {}, "--broadcast and --multicast exclude each"),
        ({"cluster": ""}, {}, "--cluster: '' is not TEXT"),
        ({}, {"CORELKV_STORE_HELD_MAX": "1.5"}, "CORELKV_STORE_HELD_MAX: '1.5' is not a whole number"),
    ],
)
def test_a_wrong_value_is_explained_with_its_source(
    flags: dict[str, str], environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load({**NEEDED, **flags}, environment)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("rooster = 1", r"node\.toml: there is no setting rooster; did you mean roster\?"),
        ("[transprot]\nx = 1", r"there is no setting transprot; did you mean transport\?"),
        (
            "[membership]\nsuspect_ms = 1",
            r"\[membership\]: there is no suspect_ms .* did you mean suspect_after_ms\?",
        ),
        ('[log]\nlevel = "info"', r"did you mean log_level, outside the table\?"),
        (
            "[membership]\nsuspect_after_ms = 'x'",
            r"node\.toml, \[membership\] suspect_after_ms: 'x' is not a number",
        ),
        ("[membership]\nsuspect_after_ms = nan", "suspect_after_ms: nan is not a number"),
        ("[membership]\nsuspect_after_ms = -5", "suspect_after_ms: -5 is not a number, 0 or more"),
        ("[store]\nheld_max = true", "held_max: True is not a whole number"),
        (
            "[membership]\nsuspect_after_ms = 5",
            r"\[membership\] cannot .* three heartbeats.* \(given by .*node\.toml, \[membership\] suspect",
        ),
        ("transport = 5", r"transport: 5 should be a table: write \[transport\]"),
        ("node = 5", r"node\.toml, node: 5 should be a string"),
        ("chaos = 'yes'", r"node\.toml, chaos: 'yes' should be true or false"),
        ("a = 1\nnode = = 2", r"node\.toml is not TOML: .*line 2"),
    ],
)
def test_a_wrong_file_is_explained(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load(NEEDED, {}, written(tmp_path, content))


@pytest.mark.parametrize("text", ["held_max=3", "store.held_max", "shop.held_max=3"])
def test_a_wrong_set_is_explained(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--set .*: expected TABLE\.KEY=VALUE"):
        load(NEEDED, {}, None, (text,))


def test_a_missing_setting_names_all_ways_to_give_it() -> None:
    with pytest.raises(
        SettingsError, match=r"roster is missing .*--roster, CORELKV_ROSTER or the file of --config"
    ):
        load({"node": "a", "data": "/d"}, {})


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*nothing\.toml: No such file"):
        load(NEEDED, {}, tmp_path / "nothing.toml")


def test_the_document_is_up_to_date() -> None:
    hint = "python -m kvstore.cli.settings_document > docs/configuration.md"
    assert DOCUMENT.read_text() == render_markdown(), f"bring it up to date: {hint}"


def test_every_bound_of_every_layer_is_explained_in_the_document() -> None:
    assert "|  |" not in render_markdown()


def test_the_documented_file_is_right(tmp_path: Path) -> None:
    example = render_markdown().partition("```toml\n")[2].partition("```")[0]
    assert load({}, {}, written(tmp_path, example)).membership.suspect_after_ms == 800.0
