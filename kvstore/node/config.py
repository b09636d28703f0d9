"""All settings of one node, as one value from the command line down to the machines.

The text under each field is what `corelkv serve --help` and `docs/configuration.md` say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corel import CorelConfig, Roster
from kvstore.node.open_snapshots import SnapshotConfig
from kvstore.store import BASIS_BYTES_MAX, BATCH_OVERHEAD_BYTES, WRITE_BYTES_MAX, WRITE_OVERHEAD_BYTES, StoreConfig
from membership import MembershipConfig
from transport import TransportConfig
from transport.udp import Address, BroadcastMode, Mode, MulticastMode, PeersMode, is_loopback


class ConfigError(ValueError):
    """A setting is wrong. `setting` is its name, and `problem` goes on from there: "is x, which ..."."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting} {problem}")
        self.setting = setting
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Preset:
    """The bounds of all layers for one kind of network. A node begins with one of `PRESETS`; settings of the
    operator replace single bounds of it."""

    transport: TransportConfig = field(default_factory=TransportConfig)
    membership: MembershipConfig = field(default_factory=MembershipConfig)
    log: CorelConfig = field(default_factory=CorelConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)


PRESETS: Mapping[str, Preset] = {
    # The classes' own defaults: an Ethernet of today, disks that sync in milliseconds.
    "lan": Preset(),
    # Nothing is fragmented on the way from one process of a machine to another: large datagrams save system calls.
    "loopback": Preset(transport=TransportConfig(datagram_bytes_max=32_768)),
}
"""A preset for wide-area networks belongs here when there is a membership for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of one node of a cluster."""

    node: str
    """this node's name, one of the roster's"""
    roster: Roster
    """all nodes, the same everywhere; `a=2,b` gives a two votes"""
    data: Path
    """directory for this node's files"""
    cluster: str = "corelkv"
    """clusters of different names ignore each other"""
    http: Address = ("127.0.0.1", 8001)
    """where this node serves its API and console"""
    urls: Mapping[str, str] = field(default_factory=dict)
    """where each node's API is reached, by clients (/v1/cluster tells them) and `corelkv partition`, and by nodes
    that lack much where node_urls has nothing else"""
    node_urls: Mapping[str, str] = field(default_factory=dict)
    """where nodes that lack much reach the API of each other, where that is not at urls: nodes send no passwords,
    so if urls lead to a proxy that asks for one, give addresses that do not. No client is told of them"""
    broadcast: Address = ("127.255.255.255", 7400)
    """reach the others by UDP broadcast; 127.255.255.255 is this machine"""
    multicast: Address | None = None
    """or by a UDP multicast group"""
    peers: tuple[Address, ...] = ()
    """or by a list of all nodes' UDP addresses; needs bind"""
    bind: Address | None = None
    """with peers: the UDP address at which this node listens"""
    preset: str = "lan"
    """the kind of network, which decides the defaults of the layers' bounds"""
    bootstrap: bool = False
    """on the very first start of a new cluster, and never again: an empty disk may vote"""
    chaos: bool = False
    """let clients cut and disturb this node's network (/v1/chaos)"""
    supervisor: Path | None = None
    """with chaos: the socket of `corelkv cluster`, through which clients can kill and start nodes"""
    journal: bool = True
    """write replication events to DATA/journal (docs/journal.md)"""
    journal_bytes_max: int = 536_870_912
    """how many bytes all files of the journal may have; the oldest are deleted"""
    journal_file_bytes_max: int = 16_777_216
    """how many bytes one file of the journal may have before the next is begun"""
    journal_file_s: int = 60
    """after so many seconds the next file is begun even so: readers see files that are finished"""
    transfer_bytes_per_s: int = 50_000_000
    """how fast a node that lacks much fetches the state of another: more is sooner, and takes more of the
    network and of the other's time"""
    log_level: str = "info"
    """the least that is logged (to stderr)"""
    log_format: str = "text"
    """lines for people, or an object per line"""
    transport: TransportConfig = field(default_factory=TransportConfig)
    membership: MembershipConfig = field(default_factory=MembershipConfig)
    log: CorelConfig = field(default_factory=CorelConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)

    def __post_init__(self) -> None:
        names = self.roster.weights
        if self.node not in names:
            raise ConfigError("node", f"is {self.node}, which is not in the roster: {', '.join(names)}")
        for setting, urls in (("urls", self.urls), ("node_urls", self.node_urls)):
            if unknown := [name for name in urls if name not in names]:
                raise ConfigError(setting, f"names {unknown[0]}, which is not in the roster")
        if self.peers and self.bind is None:
            raise ConfigError("peers", "needs bind: which of the addresses is this node's?")
        if self.bind is not None and not self.peers:
            raise ConfigError("bind", "is for peers only, and there are none")
        if self.journal_file_bytes_max < 65_536 or self.journal_file_s < 1:
            raise ConfigError("journal_file_bytes_max", "is at least 65,536, and journal_file_s at least 1")
        if self.journal_bytes_max < 2 * self.journal_file_bytes_max:
            raise ConfigError("journal_bytes_max", "must hold at least two files of journal_file_bytes_max")
        if self.transfer_bytes_per_s < 1:
            raise ConfigError("transfer_bytes_per_s", "is at least 1, or nothing would ever be fetched")
        needed = WRITE_BYTES_MAX + WRITE_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES + BASIS_BYTES_MAX
        if self.log.body_bytes_max < max(needed, self.store.batch_bytes_max):
            raise ConfigError(
                "log.body_bytes_max",
                f"is {self.log.body_bytes_max:,}: a message of the log must take the largest write, {needed:,} "
                f"bytes, and store.batch_bytes_max, {self.store.batch_bytes_max:,}",
            )

    @property
    def mode(self) -> Mode:
        """How the other nodes are reached."""
        if self.peers and self.bind is not None:
            return PeersMode(self.bind, self.peers)
        if self.multicast is not None:
            return MulticastMode(self.multicast)
        return BroadcastMode(self.broadcast)


def preset_for(mode: Mode) -> str:
    """Returns the name of the preset that fits this way of reaching the others."""
    return "loopback" if is_loopback(mode) else "lan"
