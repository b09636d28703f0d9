"""The simulated network misbehaves exactly as its weather says."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulator.network import Network, Weather
from tests.simulator.world import World

MANY = 2_000


class Lan:
    """A network of three hosts; it records what arrived where and when, and what became of the rest."""

    def __init__(self, weather: Weather, seed: int = 1) -> None:
        self.world = World()
        self.network: Network[bytes] = Network(self.world, Random(seed), weather, len)
        self.arrived: dict[str, list[tuple[float, bytes]]] = {name: [] for name in "abc"}
        self.fates: list[tuple[str, str, str]] = []
        self.network.trace = lambda what, source, target, item: self.fates.append((what, source, target))
        for name in self.arrived:
            self.attach(name)

    def attach(self, name: str) -> None:
        self.network.attach(name, lambda item: self.arrived[name].append((self.world.now, item)))

    def send(self, source: str, *items: bytes) -> None:
        for item in items:
            self.network.broadcast(source, item)

    def run(self) -> None:
        self.world.run_until(self.world.now + 100_000.0)

    def items(self, name: str) -> list[bytes]:
        return [item for _, item in self.arrived[name]]

    def heard(self) -> str:
        """Returns which hosts hear which, after every host has sent its name once."""
        for name in self.arrived:
            self.send(name, name.encode())
        self.run()
        heard = " ".join(f"{name}:{b''.join(sorted(self.items(name))).decode()}" for name in self.arrived)
        for arrivals in self.arrived.values():
            arrivals.clear()
        return heard


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_in_fair_weather_all_arrives_once_in_order_after_the_delay_and_not_at_the_sender() -> None:
    lan = Lan(Weather(delay_ms=2.5))
    lan.send("a", b"x", b"y")
    lan.run()
    assert lan.arrived == {"a": [], "b": [(2.5, b"x"), (2.5, b"y")], "c": [(2.5, b"x"), (2.5, b"y")]}


def test_loss_is_drawn_for_each_receiver() -> None:
    lan = Lan(Weather(loss=0.3))
    lan.send("a", *numbered(MANY))
    lan.run()
    for name in "bc":
        assert 0.26 < 1.0 - len(lan.items(name)) / MANY < 0.34
    assert lan.items("b") != lan.items("c")
    assert sum(what == "lost" for what, _, _ in lan.fates) == 2 * MANY - len(lan.items("b") + lan.items("c"))


def test_duplication_makes_second_copies_and_no_third() -> None:
    lan = Lan(Weather(duplication=0.3))
    lan.send("a", *numbered(MANY))
    lan.run()
    copies = [lan.items("b").count(item) for item in numbered(MANY)]
    assert set(copies) == {1, 2}
    assert 0.26 < copies.count(2) / MANY < 0.34


def test_jitter_adds_an_exponential_delay_and_reorders() -> None:
    lan = Lan(Weather(delay_ms=1.0, jitter_ms=4.0))
    lan.send("a", *numbered(MANY))
    lan.run()
    times = [time for time, _ in lan.arrived["b"]]
    assert min(times) >= 1.0
    assert 4.5 < sum(times) / MANY < 5.5
    assert lan.items("b") != numbered(MANY)
    assert sorted(lan.items("b")) == sorted(numbered(MANY))


def test_the_same_seed_has_the_same_weather_and_another_seed_another() -> None:
    def arrivals(seed: int) -> object:
        lan = Lan(Weather(loss=0.2, duplication=0.2, jitter_ms=1.0), seed)
        lan.send("a", *numbered(50))
        lan.run()
        return lan.arrived

    assert arrivals(1) == arrivals(1)
    assert arrivals(1) != arrivals(2)


def test_a_host_that_was_placed_beside_another_is_cut_off_with_it() -> None:
    lan = Lan(Weather())
    lan.network.place("c", "a")
    lan.network.partition(["a", "b"])
    assert lan.heard() == "a:c b: c:a"


def test_a_one_way_cut_is_deaf_in_one_direction_only() -> None:
    lan = Lan(Weather())
    lan.network.cut_one_way("a", "b")
    assert lan.heard() == "a:bc b:c c:ab"
    assert lan.fates.count(("cut", "a", "b")) == 1


def test_a_partition_replaces_all_cuts_and_healing_ends_it() -> None:
    lan = Lan(Weather())
    lan.network.cut_one_way("a", "b")
    lan.network.partition(["ab", "c"])
    assert lan.heard() == "a:b b:a c:"
    lan.network.partition(["a", "bc"])
    assert lan.heard() == "a: b:c c:b"
    lan.network.heal()
    assert lan.heard() == "a:bc b:ac c:ab"


def test_what_is_under_way_when_a_cut_is_made_still_arrives() -> None:
    lan = Lan(Weather(delay_ms=5.0))
    lan.send("a", b"early")
    lan.network.partition(["a", "b", "c"])
    lan.send("a", b"late")
    lan.run()
    assert lan.items("b") == [b"early"]


def test_a_detached_host_hears_nothing_until_it_is_attached_again() -> None:
    lan = Lan(Weather(delay_ms=5.0))
    lan.send("a", b"under way")
    lan.network.detach("b")
    lan.send("a", b"sent to the dead")
    lan.run()
    lan.attach("b")
    lan.send("a", b"to the living")
    lan.run()
    assert lan.items("b") == [b"to the living"]
    assert [fate for fate in lan.fates if fate[0] == "dead"] == [("dead", "a", "b")]


def test_a_receiver_of_limited_bandwidth_works_through_its_buffer_at_that_rate() -> None:
    lan = Lan(Weather(delay_ms=1.0, bytes_per_ms=10.0, buffer_bytes=10_000))
    lan.send("a", *[bytes(100)] * 5)
    lan.run()
    assert [time for time, _ in lan.arrived["b"]] == pytest.approx([11.0, 21.0, 31.0, 41.0, 51.0])


def test_what_finds_the_buffer_full_is_spilled_and_room_returns_with_time() -> None:
    lan = Lan(Weather(delay_ms=1.0, bytes_per_ms=10.0, buffer_bytes=250))
    lan.send("a", b"1" * 100, b"2" * 100, b"3" * 100, b"4" * 100, b"5" * 100)  # the fourth finds 300 bytes waiting
    lan.world.run_until(20.0)
    lan.send("b", b"6" * 100)
    lan.run()
    assert [item[:1] for item in lan.items("c")] == [b"1", b"2", b"3", b"6"]
    assert [fate for fate in lan.fates if fate[0] == "spilled"] == [("spilled", "a", name) for name in "bcbc"]


def test_some_datagrams_are_kept_back_and_arrive_within_the_time_drawn_for_them() -> None:
    lan = Lan(Weather(delay_ms=1.0, late=0.2, late_ms_min=100.0, late_ms_max=300.0))
    lan.send("a", *numbered(MANY))
    lan.run()
    late = [time for time, _ in lan.arrived["b"] if time > 1.0]
    assert sorted(lan.items("b")) == sorted(numbered(MANY))
    assert 0.16 < len(late) / MANY < 0.24
    assert 100.0 <= min(late) < 105.0
    assert 295.0 < max(late) <= 300.0
    assert lan.network.counts == {"late datagrams": sum(what == "kept back" for what, _, _ in lan.fates)}


def test_a_late_datagram_reaches_a_target_that_was_started_again_meanwhile() -> None:
    lan = Lan(Weather(late=1.0, late_ms_min=500.0, late_ms_max=500.0))
    lan.send("a", b"late")
    lan.network.detach("b")
    lan.network.detach("a")
    lan.world.run_until(400.0)
    lan.attach("b")
    lan.attach("a")
    lan.run()
    assert lan.arrived["b"] == [(500.0, b"late")]
    assert lan.network.counts["late datagrams of a former start of their sender"] == 2
    assert lan.network.counts["late datagrams to a former start of their target"] == 1


def test_a_link_may_be_slow_in_one_direction_until_that_is_ended() -> None:
    lan = Lan(Weather(delay_ms=1.0))
    lan.network.slow_down("a", "b", 80.0)
    lan.send("a", b"x")
    lan.send("b", b"y")
    lan.run()
    assert lan.arrived == {"a": [(1.0, b"y")], "b": [(81.0, b"x")], "c": [(1.0, b"x"), (1.0, b"y")]}
    assert lan.network.counts["datagrams on slow links"] == 1
    lan.network.end_link_delays()
    sent_at = lan.world.now
    lan.send("a", b"z")
    lan.run()
    assert lan.arrived["b"][-1] == (sent_at + 1.0, b"z")


def test_clearing_the_weather_ends_the_faults_and_keeps_delay_and_bandwidth() -> None:
    stormy = Weather(0.4, 0.3, delay_ms=5.0, jitter_ms=10.0, bytes_per_ms=20.0, buffer_bytes=200, late=0.1)
    assert stormy.cleared() == Weather(delay_ms=5.0, bytes_per_ms=20.0, buffer_bytes=200)


# Hosts whose process has crashed


def refused(lan: Lan, unicasts: float = 1.0, broadcasts: float = 0.0) -> list[tuple[float, str]]:
    """Crashes c, lets refusals be made, and returns when a learnt of which host's."""
    learnt: list[tuple[float, str]] = []
    lan.network.refuse(unicasts, broadcasts, Random(5))
    for name in "abc":
        lan.network.attach_refusals(name, lambda host: learnt.append((lan.world.now, host)))
    lan.network.detach("c")
    return learnt


def test_a_unicast_to_a_crashed_process_is_refused_after_a_round_trip() -> None:
    lan = Lan(Weather(delay_ms=2.5))
    learnt = refused(lan)
    lan.network.unicast("a", "b", b"x")
    lan.network.unicast("a", "c", b"x")
    lan.send("a", b"y")
    lan.run()
    assert learnt == [(5.0, "c")]
    assert lan.items("b") == [b"x", b"y"]


def test_broadcasts_are_refused_where_each_peer_is_sent_a_copy() -> None:
    lan = Lan(Weather(delay_ms=2.5))
    learnt = refused(lan, broadcasts=1.0)
    lan.send("a", b"y")
    lan.run()
    assert [host for _, host in learnt] == ["c"]


@pytest.mark.parametrize("cut", ["ac", "ca"])
def test_no_refusal_crosses_a_cut(cut: str) -> None:
    lan = Lan(Weather())
    learnt = refused(lan)
    lan.network.cut_one_way(*cut)
    lan.network.unicast("a", "c", b"x")
    lan.run()
    assert learnt == []


def test_some_refusals_are_missing_and_some_are_late() -> None:
    lan = Lan(Weather(delay_ms=1.0))
    learnt = refused(lan, unicasts=0.5)
    for _ in range(MANY):
        lan.network.unicast("a", "c", b"x")
    lan.run()
    assert 0.45 * MANY < len(learnt) < 0.55 * MANY
    assert 0.07 < len([at for at, _ in learnt if at > 3.0]) / len(learnt) < 0.13
