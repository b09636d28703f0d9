"""The files of docs/deploy: what our own parsers take, and what the system's tools say where there are any."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from kvstore.cli.main import make_parser
from kvstore.cli.settings import SETTINGS
from kvstore.cli.settings_sources import from_arguments, load
from kvstore.node import NodeConfig
from tests.operations.guide import DEPLOY, ROOT, section

UNIT = (DEPLOY / "corelkv.service").read_text()
TOMLS = sorted(DEPLOY.glob("node-*.toml"))


def values(text: str, key: str) -> list[str]:
    """The values of a key of a unit file."""
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def config(path: Path) -> NodeConfig:
    return load({}, {}, path)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_unit_starts_a_node_with_flags_that_there_are() -> None:
    [command] = values(UNIT, "ExecStart")
    program, *arguments = shlex.split(command)
    assert Path(program).name == "corelkv"
    options = make_parser().parse_args(arguments)
    assert options.config == Path("/etc/corelkv/node.toml")
    options.config = TOMLS[0]
    assert from_arguments(options, {}).data == Path("/var/lib") / values(UNIT, "StateDirectory")[0]


def test_a_wrong_setting_is_not_tried_again_and_nobody_is_bootstrapped_by_the_files() -> None:
    assert values(UNIT, "RestartPreventExitStatus") == ["2"]
    assert "--bootstrap" not in values(UNIT, "ExecStart")[0]
    assert not any(config(path).bootstrap or config(path).chaos for path in TOMLS)
    assert f"Environment={SETTINGS['bootstrap'].variable}=true" in section("The first start")


def test_the_hosts_of_a_cluster_fit_together() -> None:
    configs = [config(path) for path in TOMLS]
    assert [one.node for one in configs] == ["a", "b", "c"]
    for same in ("cluster", "roster", "peers", "urls", "log", "data"):
        assert len({str(getattr(one, same)) for one in configs}) == 1, same
    assert tuple(one.bind for one in configs) == configs[0].peers
    for one in configs:
        host, port = one.http
        assert one.urls[one.node] == f"http://{host}:{port}"
    own = ("node", "http", "bind")
    shared = [{k: v for k, v in tomllib.loads(path.read_text()).items() if k not in own} for path in TOMLS]
    assert shared[0] == shared[1] == shared[2]


def test_the_firewall_opens_the_ports_that_the_nodes_have_to_the_hosts_that_there_are() -> None:
    rules = (DEPLOY / "nftables.conf").read_text()
    node = config(TOMLS[0])
    assert set(re.findall(r"udp dport (\d+)", rules)) == {str(port) for _, port in node.peers}
    assert set(re.findall(r"tcp dport (\d+)", rules)) == {str(node.http[1])}
    [listed] = re.findall(r"set nodes \{.*?elements = \{ (.*?) \}", rules, re.DOTALL)
    assert listed.split(", ") == [host for host, _ in node.peers]


def test_the_proxy_knows_all_nodes_and_holds_nothing_back() -> None:
    proxy = (DEPLOY / "nginx.conf").read_text()
    nodes = [f"{host}:{port}" for host, port in (config(path).http for path in TOMLS)]
    assert re.findall(r"^ +server ([0-9.:]+) ", proxy, re.MULTILINE) == nodes
    assert re.findall(r"^upstream corelkv_[abc] { server ([0-9.:]+);", proxy, re.MULTILINE) == nodes
    off = re.findall(r"^ +(\w+) off;", proxy, re.MULTILINE)
    assert {"proxy_buffering", "proxy_next_upstream"} <= set(off)
    assert "proxy_pass http://$corelkv_nodes;" in proxy  # without a path: nginx would decode keys


def test_every_file_is_named_in_the_guide_and_every_link_leads_somewhere() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    links = set(re.findall(r"\]\((deploy/[^)#]+)\)", guide)) - {"deploy/"}
    assert links == {f"deploy/{path.name}" for path in DEPLOY.iterdir()}
    anchors = {re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in _headings(guide)}
    assert set(re.findall(r"\]\(#([^)]+)\)", guide)) <= anchors


def _headings(guide: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", guide, flags=re.DOTALL), re.MULTILINE)


# Where the tools are installed


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "corelkv.service"
    unit.write_text(UNIT.replace("/opt/corelkv/bin/corelkv", "/bin/true"))  # which must exist
    checked = run("systemd-analyze", "verify", "--recursive-errors=no", unit)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="systemd is not installed")
def test_systemd_takes_the_user(tmp_path: Path) -> None:
    checked = run("systemd-sysusers", "--dry-run", f"--root={tmp_path}", DEPLOY / "corelkv.sysusers.conf")
    assert checked.returncode == 0, checked.stderr
    assert "corelkv" in checked.stdout + checked.stderr


@pytest.mark.skipif(not shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin"), reason="nft is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="nft checks rules with the kernel, which needs root")
def test_nft_takes_the_rules() -> None:
    nft = shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin")
    assert nft is not None
    checked = run(nft, "-c", "-f", DEPLOY / "nftables.conf")
    assert checked.returncode == 0, checked.stderr
