"""The proxy of docs/deploy, with other addresses and files, in front of a real node: where nginx is installed."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.cluster import Cluster, eventually
from tests.operations.guide import DEPLOY
from tests.ports import HOST, free_port

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(
    not (NGINX and shutil.which("openssl")), reason="needs nginx and openssl (Debian: nginx-light)"
)

MAIN = """
daemon off; pid {0}/pid; error_log {0}/error.log; user root;
events {{}}
http {{
    access_log off;
    client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;
    fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
    include {0}/corelkv.conf;
}}
"""


def make_secrets(directory: Path) -> None:
    names = f"subjectAltName=IP:{HOST},DNS:*.orders.example.org"
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=orders -addext {names}"
    subprocess.run(
        [*request.split(), "-keyout", directory / "orders.key", "-out", directory / "orders.pem"],
        check=True,
        capture_output=True,
    )
    (directory / "corelkv.users").write_text("operator:{PLAIN}secret\n")


def config(directory: Path, node: str, port: int) -> str:
    text = (DEPLOY / "nginx.conf").read_text()
    for number in (1, 2, 3):
        text = text.replace(f"10.0.0.{number}:8001", node)
    return text.replace("listen 443", f"listen {HOST}:{port}").replace("/etc/nginx", str(directory))


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of the proxy, which has the password."""
    directory, port = tmp_path_factory.mktemp("nginx"), free_port()
    make_secrets(directory)
    with Cluster("a", directory) as cluster:
        node = cluster.start()["a"].url.removeprefix("http://")
        (directory / "corelkv.conf").write_text(config(directory, node, port))
        (directory / "nginx.conf").write_text(MAIN.format(directory))
        trusted = ssl.create_default_context(cafile=str(directory / "orders.pem"))
        url, auth = f"https://{HOST}:{port}", ("operator", "secret")
        assert NGINX is not None
        with (
            subprocess.Popen([NGINX, "-c", directory / "nginx.conf"], stderr=subprocess.DEVNULL) as process,
            httpx.Client(base_url=url, verify=trusted, auth=auth, trust_env=False) as client,
        ):
            try:
                eventually(lambda: (directory / "pid").exists(), lambda: (directory / "error.log").read_text())
                yield client
            finally:
                process.terminate()


def test_nobody_passes_without_the_password(proxy: httpx.Client) -> None:
    assert proxy.get("/v1/status", auth=("operator", "wrong")).status_code == 401


@pytest.mark.parametrize("path", ["orders%2F17%2Fa%20b", "x//y", "c%2F..%2Fd", "%C3%A9%25"])
def test_keys_arrive_as_they_were_sent(proxy: httpx.Client, path: str) -> None:
    assert proxy.put(f"/v1/kv/{path}?ack=green", content=path.encode()).status_code == 200
    assert proxy.get(f"/v1/kv/{path}").content == path.encode()
    keys = [item["key"] for item in proxy.get("/v1/kv?keys_only=true").json()["items"]]
    assert httpx.URL(f"http://x/{path}").path[1:] in keys


def test_a_feed_arrives_as_it_is_sent(proxy: httpx.Client) -> None:
    with proxy.stream("GET", "/v1/watch?prefix=fed/", timeout=20.0) as feed:
        assert feed.headers["content-type"].startswith("text/event-stream")
        assert proxy.put("/v1/kv/fed%2F1?ack=green", content=b"x").status_code == 200
        assert any("fed/1" in line for line in feed.iter_lines())


def test_the_console_of_a_node_is_there_and_may_write_but_other_pages_may_not(proxy: httpx.Client) -> None:
    assert "<title>" in proxy.get("/").text
    own = {"Host": "a.orders.example.org", "Origin": "https://a.orders.example.org"}
    assert proxy.put("/v1/kv/console", content=b"x", headers=own).status_code == 200
    foreign = {**own, "Origin": "https://evil.example.org"}
    assert proxy.put("/v1/kv/console", content=b"x", headers=foreign).status_code == 403


def test_faults_cannot_be_injected_through_it(proxy: httpx.Client) -> None:
    for path in ("/v1/chaos", "/v1//chaos", "/v1/chao%73", "/v1/lab/nodes/a"):
        answer = proxy.request("POST" if "lab" in path else "DELETE", path)
        assert (answer.status_code, "nginx" in answer.text) == (404, True)
