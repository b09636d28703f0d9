"""The rules that a peer's frame must keep to be accepted. Breaking one is the peer's error, not ours."""

from __future__ import annotations

from transport.config import TransportConfig
from transport.dag import CausalDag, PacketStream
from transport.effects import Reason
from transport.messages import SEQUENCE_MAX, Acks, Packet, Status

_CLOCK_MAX = SEQUENCE_MAX // 2
"""No correct clock gets this far. If one did, following it would leave our own clock few numbers to go on with."""


class Admission:
    """Checks the frames that members send in our view. `clock` is our own clock."""

    def __init__(self, dag: CausalDag, config: TransportConfig) -> None:
        self._dag = dag
        self._config = config

    def packet_objection(self, stream: PacketStream, packet: Packet, clock: int) -> Reason | None:
        """Returns why a packet that is not a duplicate cannot be correct, or cannot be kept; None if it can."""
        if stream is self._dag.own:
            return Reason.MY_OWN_NAME
        if self._is_jump(packet.last_clock, clock):
            return Reason.CLOCK_JUMP
        if packet.last_sequence > stream.inserted_through + self._config.sequence_jump_max:
            return Reason.SEQUENCE_JUMP
        if not stream.fits_between(packet):
            return Reason.OUT_OF_ORDER
        is_next = packet.sequence == stream.inserted_through + 1
        if not is_next and stream.pending_bytes >= self._config.window_bytes_max:
            return Reason.PENDING_FULL
        return self._ack_objection(stream, packet.acks)

    def status_objection(self, stream: PacketStream, status: Status, clock: int) -> Reason | None:
        """Returns why a status cannot be correct; None if it can."""
        if self._is_jump(status.clock, clock):
            return Reason.CLOCK_JUMP
        if status.sequence > stream.inserted_through + self._config.sequence_jump_max:
            return Reason.SEQUENCE_JUMP
        if status.marks and (objection := self._marks_objection(status.marks)) is not None:
            return objection
        return self._ack_objection(stream, status.acks)

    def _ack_objection(self, sender: PacketStream, acks: Acks) -> Reason | None:
        known = sender.acks
        for machine, sequence in acks:
            if machine in known and sequence <= known[machine]:
                continue  # nothing new, as in most of a repeated status
            stream = self._dag.streams.get(machine)
            if stream is None:
                return Reason.NOT_A_MEMBER
            if stream is sender or (stream is self._dag.own and sequence > stream.inserted_through):
                return Reason.ACKS_UNSENT
            if sequence > stream.inserted_through + self._config.sequence_jump_max:
                return Reason.SEQUENCE_JUMP
        return None

    def _marks_objection(self, marks: tuple[int, ...]) -> Reason | None:
        streams = self._dag.streams
        if len(marks) != len(streams):
            return Reason.NOT_A_MEMBER
        is_of_own = [stream is self._dag.own for stream in streams.values()]
        return Reason.ACKS_UNSENT if marks[is_of_own.index(True)] > self._dag.own.inserted_through else None

    def _is_jump(self, clock: int, our_clock: int) -> bool:
        return clock > our_clock + self._config.clock_jump_max or clock > _CLOCK_MAX
