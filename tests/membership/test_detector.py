"""The failure detector, which looks whenever its deadline has come and hears the machines that a test names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from membership.config import MembershipConfig
from membership.detector import FailureDetector
from tests.membership.builders import machine, names
from transport.messages import Machine

A, B, C = map(machine, "abc")
CONFIG = MembershipConfig()


class Noticed(NamedTuple):
    at: float
    silent: str


class Watch:
    """A detector with simulated time, and machines that send heartbeats, each with a period of its own. `answers`
    names the machines that answer probes, and `refused` those whose hosts refuse them."""

    def __init__(self, watched: str = "bc", config: MembershipConfig = CONFIG) -> None:
        self.now = 0.0
        self.detector = FailureDetector(config, 0.0)
        self.detector.watch_only(map(machine, watched), 0.0)
        self.probes: list[tuple[float, Machine]] = []
        self.noticed: list[Noticed] = []
        self.answers = ""
        self.refused = ""
        self.period_ms: dict[str, float] = dict.fromkeys(watched, CONFIG.presence_ms)
        self._next_beat: dict[str, float] = dict(self.period_ms)

    def silence(self, quiet: str) -> None:
        for name in quiet:
            self._next_beat[name] = float("inf")

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        while not is_done():
            beat = min(self._next_beat, key=lambda name: self._next_beat[name])
            upcoming = min(self._next_beat[beat], self.detector.deadline)
            if upcoming > until:
                break
            self.now = max(self.now, upcoming)
            if self.now >= self._next_beat[beat]:
                self._next_beat[beat] = self.now + self.period_ms[beat]
                self.detector.heard(machine(beat), self.now)
                self.detector.heard_presence(machine(beat), self.now)
            if self.now >= self.detector.deadline:
                self._look()
        self.now = until

    def run_until_noticed(self, within_ms: float = 10_000.0) -> Noticed:
        count = len(self.noticed)
        self.run(self.now + within_ms, lambda: len(self.noticed) > count)
        return self.noticed[count]

    def _look(self) -> None:
        silent, probed = self.detector.look(self.now)
        if silent:
            self.noticed.append(Noticed(self.now, names(silent)))
            self.silence(names(silent))
            self.detector.watch_only([], self.now)
        for target in probed:
            self.probes.append((self.now, target))
            if target.name in self.answers:
                self.detector.probe_answered(target)
            if target.name in self.refused:
                self.detector.port_unreachable(target, self.now)


def test_who_sends_heartbeats_is_never_suspected_nor_probed() -> None:
    watch = Watch()
    watch.run(60_000.0)
    assert watch.noticed == []
    assert watch.probes == []


def test_who_falls_silent_is_noticed_after_the_allowed_time_and_soon_after() -> None:
    watch = Watch()
    watch.run(1_000.0)
    watch.silence("c")
    noticed = watch.run_until_noticed()
    assert noticed.silent == "c"
    assert noticed.at - 1_000.0 == CONFIG.suspect_after_ms


def test_at_least_two_probes_go_unanswered_before_a_fault() -> None:
    watch = Watch()
    watch.silence("c")
    noticed = watch.run_until_noticed()
    times = [at for at, target in watch.probes]
    assert {target for _, target in watch.probes} == {C}
    assert len([at for at in times if CONFIG.suspect_after_ms / 2.0 <= at < noticed.at]) >= 2
    assert times[0] == CONFIG.overdue_gaps * CONFIG.presence_ms
    assert all(later - at >= CONFIG.probe_ms for at, later in pairwise(times))


def test_probes_of_an_overdue_heartbeat_do_not_count_before_half_of_the_allowed_silence() -> None:
    detector = FailureDetector(CONFIG, 0.0)
    detector.watch_only([C], 0.0)
    assert detector.look(150.0) == ([], [C])
    assert detector.look(199.0) == ([], [])
    assert detector.look(400.0) == ([], [C])
    assert detector.look(460.0) == ([], [C])
    assert detector.look(461.0) == ([C], [])


def test_time_alone_is_no_fault_while_fewer_than_two_probes_are_unanswered() -> None:
    detector = FailureDetector(CONFIG, 0.0)
    detector.watch_only([C], 0.0)
    for now in (150.0, 210.0):
        detector.look(now)
    assert detector.look(500.0) == ([], [C])  # we were busy until now, for a little less than a pause
    assert detector.look(560.0) == ([C], [])


def test_a_probe_answered_is_a_sign_of_life() -> None:
    watch = Watch()
    watch.answers = "c"
    watch.silence("c")
    watch.run(3_000.0)
    assert watch.noticed == []


def test_who_answers_probes_but_is_mute_otherwise_is_given_up_at_last() -> None:
    watch = Watch()
    watch.answers = "c"
    watch.silence("c")
    noticed = watch.run_until_noticed()
    assert noticed.silent == "c"
    assert CONFIG.mute_after_ms < noticed.at <= CONFIG.mute_after_ms + CONFIG.pause_ms


def test_machines_that_vanish_together_are_noticed_together() -> None:
    watch = Watch()
    watch.run(1_030.0)
    watch.silence("c")
    watch.run(1_070.0)
    watch.silence("b")
    watch.detector.heard(B, 1_070.0)  # a last message
    assert watch.run_until_noticed().silent == "bc"


def test_who_vanishes_long_after_another_is_not_taken_along() -> None:
    watch = Watch()
    watch.silence("c")
    watch.run(250.0)
    watch.silence("b")
    assert watch.run_until_noticed().silent == "c"


# Hosts that refuse what is sent to a process that has died


def test_who_is_overdue_and_refused_is_noticed_at_once() -> None:
    watch = Watch()
    watch.run(1_000.0)
    watch.silence("c")
    watch.refused = "c"
    noticed = watch.run_until_noticed()
    assert noticed.silent == "c"
    assert noticed.at - 1_000.0 == watch.probes[0][0] - 1_000.0 == CONFIG.overdue_gaps * CONFIG.presence_ms


def test_a_refusal_before_the_heartbeat_is_overdue_counts_only_then() -> None:
    watch = Watch()
    watch.run(1_010.0)
    watch.silence("c")
    watch.detector.port_unreachable(C, 1_010.0)  # of a datagram that was no probe
    noticed = watch.run_until_noticed()
    assert noticed == Noticed(1_000.0 + CONFIG.overdue_gaps * CONFIG.presence_ms, "c")


def test_a_refusal_of_a_machine_that_goes_on_to_send_heartbeats_is_nothing() -> None:
    watch = Watch()
    for now in range(1_000, 20_000, 70):
        watch.run(float(now))
        watch.detector.port_unreachable(C, float(now))
    assert watch.noticed == []


def test_what_is_heard_after_a_refusal_takes_it_back() -> None:
    watch = Watch()
    watch.run(1_050.0)
    watch.detector.port_unreachable(C, 1_050.0)
    watch.run(1_150.0)
    watch.silence("c")  # its heartbeat at 1,100 ms was heard
    noticed = watch.run_until_noticed()
    assert noticed == Noticed(1_100.0 + CONFIG.suspect_after_ms, "c")


def test_what_is_heard_with_a_refusal_counts_more() -> None:
    detector = FailureDetector(CONFIG, 0.0)
    detector.watch_only([C], 0.0)
    detector.port_unreachable(C, 160.0)
    detector.heard(C, 160.0)
    assert detector.look(160.0) == ([], [])


def test_irregular_heartbeats_are_overdue_later_but_never_after_half_of_the_allowed_silence() -> None:
    watch = Watch("bc")
    for _ in range(20):
        for period in (50.0, 350.0):
            watch.period_ms = {"b": 200.0, "c": period}
            watch.run(watch.now + 200.0)
    regular, irregular = watch.detector.overdue_ms(B), watch.detector.overdue_ms(C)
    assert CONFIG.overdue_gaps * CONFIG.presence_ms < regular < irregular
    assert irregular <= watch.detector.allowed_ms(C) / 2.0


def test_heartbeats_of_a_pending_change_do_not_make_the_usual_ones_overdue() -> None:
    watch = Watch("b")
    watch.period_ms["b"] = CONFIG.presence_pending_ms
    watch.run(2_000.0)
    assert watch.detector.overdue_ms(B) >= CONFIG.overdue_gaps * CONFIG.presence_ms
    watch.period_ms["b"] = CONFIG.presence_ms
    watch.run(20_000.0)
    assert watch.probes == []


def test_a_refusal_of_before_our_own_pause_does_not_count_after_it() -> None:
    watch = Watch()
    watch.run(1_050.0)
    watch.detector.port_unreachable(C, 1_050.0)
    assert watch.detector.look(9_000.0) == ([], [B, C])


# Adaptivity


def test_patience_follows_the_measured_gaps_between_heartbeats() -> None:
    watch = Watch("b")
    watch.period_ms["b"] = 300.0
    watch.run(20_000.0)
    assert watch.noticed == []
    assert 3 * 300.0 <= watch.detector.allowed_ms(B) < 4 * 300.0
    watch.silence("b")
    assert watch.run_until_noticed().at - 20_000.0 > 3 * 300.0 - 300.0


def test_irregular_heartbeats_earn_more_patience_than_regular_ones() -> None:
    watch = Watch("bc")
    for _ in range(20):
        for period in (50.0, 350.0):
            watch.period_ms = {"b": 200.0, "c": period}
            watch.run(watch.now + 200.0)
    regular, irregular = watch.detector.allowed_ms(B), watch.detector.allowed_ms(C)
    assert CONFIG.suspect_after_ms < regular < irregular <= CONFIG.suspect_after_ms_max


def test_patience_has_a_floor_and_a_ceiling() -> None:
    watch = Watch("b")
    watch.period_ms["b"] = 10.0
    watch.run(2_000.0)
    assert watch.detector.allowed_ms(B) == CONFIG.suspect_after_ms
    watch.period_ms["b"] = 1_400.0
    watch.answers = "b"
    watch.run(60_000.0)
    assert watch.detector.allowed_ms(B) == CONFIG.suspect_after_ms_max


def test_patience_is_each_machines_own() -> None:
    watch = Watch("bc")
    watch.period_ms["b"] = 300.0
    watch.run(20_000.0)
    assert watch.detector.allowed_ms(C) == CONFIG.suspect_after_ms < watch.detector.allowed_ms(B)


# Our own pauses, and newcomers


def test_after_a_pause_of_our_own_everybody_gets_a_new_chance() -> None:
    watch = Watch()
    watch.run(1_000.0)
    watch.silence("b")
    silent, probed = watch.detector.look(9_000.0)
    assert silent == []
    assert probed == [B, C]
    watch.detector.heard(C, 9_001.0)  # it was in our socket all the time
    watch.now = 9_001.0
    noticed = watch.run_until_noticed()
    assert noticed.silent == "b"
    assert noticed.at - 9_000.0 == CONFIG.suspect_after_ms / 2.0


def test_it_looks_often_enough_to_know_its_own_pauses() -> None:
    detector = FailureDetector(CONFIG, 0.0)
    assert detector.deadline <= CONFIG.pause_ms / 2.0


def test_a_newcomer_has_its_time_from_when_it_is_watched() -> None:
    watch = Watch("b")
    watch.run(1_000.0)
    watch.detector.watch_only([B, C], 1_000.0)
    watch.period_ms["c"], watch._next_beat["c"] = 1.0, float("inf")
    noticed = watch.run_until_noticed()
    assert noticed.silent == "c"
    assert noticed.at - 1_000.0 == CONFIG.suspect_after_ms


def test_who_is_not_watched_is_not_reported() -> None:
    watch = Watch("bc")
    watch.detector.watch_only([B], 0.0)
    watch.detector.heard_presence(C, 10.0)
    watch.detector.probe_answered(C)
    watch.detector.port_unreachable(C, 20.0)
    watch.silence("c")
    watch.run(5_000.0)
    assert (watch.noticed, watch.probes) == ([], [])
