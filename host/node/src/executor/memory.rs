//! Bounds the memory of the batches of a lane: of their calls, and of the changes that they propose.

use besom_ports::guests::Usage;

use super::begin::Room;
use super::*;

/// A task whose calls use at most this much, in bytes, does not wait for others because of memory.
const SMALL_CALL: u64 = 16 << 20;

impl Executor {
    /// Whether the memory of the lane's batches allows another one of the task. One of a task whose
    /// calls use much waits until the others use less than the bound; it may then exceed it, because
    /// otherwise a call that needs more than the bound would never begin. What a task uses is known after
    /// its first call; until then it takes a place that is free, but none beside batches that take long.
    pub(super) fn has_memory(&self, room: Room, lane: Lane, task: &TaskName) -> bool {
        let is_known_to_fit = match self.memory.get(task) {
            Some(used) => *used <= SMALL_CALL,
            None => room == Room::Free,
        };
        // The operator has granted the memory of a lane whose batches all take long.
        is_known_to_fit || lane.row().long || self.memory_of(lane) < self.settings.memory_in_flight
    }

    /// The memory of the lane's batches, in bytes.
    fn memory_of(&self, lane: Lane) -> u64 {
        let of_lane = self.flights.values().filter(|flight| flight.lane == lane);
        let used = of_lane.map(|flight| match flight.is_executing() {
            true => self.used_by(flight),
            // The changes, and the statements that the store makes of them.
            false => 2 * flight.bytes as u64,
        });
        used.sum()
    }

    /// The memory of the calls of a batch, and of the changes that they return: as much as those of
    /// its task before, or all that they may use.
    fn used_by(&self, flight: &Flight) -> u64 {
        let most = flight.definition.limits.memory_bytes;
        let returned = self.sizes.get(&flight.task).copied().unwrap_or_default();
        self.memory.get(&flight.task).copied().unwrap_or(most) + returned as u64
    }

    /// Learns how much the calls of a task use. A call that failed has not reported it, and may have
    /// used all.
    pub(super) fn learn_memory(&mut self, flight: &Flight, usage: Option<&Usage>) {
        let known = self.memory.get(&flight.task).copied().unwrap_or_default();
        let used = usage.map_or(flight.definition.limits.memory_bytes, |usage| usage.memory_bytes);
        self.memory.insert(flight.task.clone(), used.max(known / 2));
    }
}
