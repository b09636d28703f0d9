"""Every buffer keeps to its named bound, at every step."""

from __future__ import annotations

from tests.simulator.checkers.base import Checker, Violation
from transport.lansis import Lansis


class BoundedBuffers(Checker):
    def stepped(self, node: str, machine: Lansis) -> None:
        config = machine.config
        packet_cost = config.datagram_bytes_max + config.packet_overhead_bytes
        pending = machine.pending_bytes()
        # The one packet that is next in its stream is always taken, or a full buffer could never empty.
        if pending > config.window_bytes_max + 2 * packet_cost:
            raise Violation(f"{node} keeps {pending} bytes of one sender pending")
        buffered, own = machine.window_bytes()
        members = len(machine.view.members)
        if own > max(config.window_bytes_max // members, packet_cost):
            raise Violation(f"{node} has {own} bytes in flight, more than its share of the window")
        units = config.buffer_windows_max * max(config.window_messages_max, members)
        if machine.window_messages()[0] > units + config.packet_units_max:
            raise Violation(f"{node} buffers {machine.window_messages()[0]} units, more than {units}")
        if machine.window_messages()[1] > max(config.window_messages_max // members, 1):
            raise Violation(f"{node} has {machine.window_messages()[1]} units in flight, more than its share")
        if machine.scheduled_answers() > config.answers_max:
            raise Violation(f"{node} is about to retransmit {machine.scheduled_answers()} packets")
        bound = config.buffer_windows_max * max(config.window_bytes_max, members * packet_cost)
        if buffered > bound + packet_cost:
            raise Violation(f"{node} buffers {buffered} bytes, more than {bound}")
        # What was in flight when we stopped acknowledging may still come, and complete a message of each sender.
        in_flight = members * (config.window_bytes_max + packet_cost + config.message_bytes_max)
        waiting = config.undelivered_bytes_max + in_flight
        if machine.undelivered_bytes() > waiting:
            raise Violation(f"{node} keeps {machine.undelivered_bytes()} bytes undelivered")
        if machine.queued_messages() > config.queue_messages_max:
            raise Violation(f"{node} queues {machine.queued_messages()} messages")
