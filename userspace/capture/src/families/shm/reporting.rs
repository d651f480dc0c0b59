//! Emits what processes hold: each mapping at once, as long as there are not too many.

use std::collections::HashMap;

use pyobs_model::{Event, Nanos, Pid, Reason, SegmentChange};

use super::Shm;
use super::holder::Piece;

/// Mappings reported one by one between two ticks (at least five ticks a second). Of further ones only those
/// that still exist at the next tick are reported.
const AT_ONCE: usize = 32_768;

impl Shm {
    /// Emits where a process's mappings have begun and ended.
    pub(super) fn report_pieces(&mut self, pid: u32, at: Nanos, events: &mut Vec<Event>) {
        if self.reported >= AT_ONCE {
            self.unreported.insert(pid);
            return;
        }
        let Some(holder) = self.holders.get_mut(&pid) else { return };
        let pieces = holder.take_pieces();
        self.reported += pieces.len();
        events.extend(pieces.into_iter().map(|piece| event(pid, at, &piece)));
    }

    /// Emits what has changed since the last call.
    pub(super) fn report(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.reported = 0;
        for pid in std::mem::take(&mut self.unreported) {
            let Some(holder) = self.holders.get_mut(&pid) else { continue };
            let (pieces, passing) = settled(holder.take_pieces());
            events.extend(pieces.iter().map(|piece| event(pid, now, piece)));
            if passing > 0 {
                events.push(Event::Loss { at: now, reason: Reason::MappingUntold, count: passing });
            }
        }
        let mut changed: Vec<_> = self.changed.drain().collect();
        changed.sort_unstable_by_key(|((id, pid), at)| (*at, *id, *pid));
        for ((id, pid), at) in changed {
            let (fds, mappings) = self.holders.get(&pid).map_or((0, 0), |holder| holder.count(id));
            events.push(Event::Segment { at, id, change: SegmentChange::Holds { pid: Pid(pid), fds, mappings } });
        }
    }
}

fn event(pid: u32, at: Nanos, piece: &Piece) -> Event {
    let (pid, address, bytes) = (Pid(pid), piece.start, piece.end.saturating_sub(piece.start));
    let change = match piece.offset {
        Some(offset) => SegmentChange::Mapped { pid, address, bytes, offset },
        None => SegmentChange::Unmapped { pid, address, bytes },
    };
    Event::Segment { at, id: piece.segment, change }
}

/// Removes mappings that both began and ended, and counts them.
fn settled(pieces: Vec<Piece>) -> (Vec<Piece>, u64) {
    let mut open: HashMap<(u64, u64), usize> = HashMap::new();
    let mut passing = 0;
    let mut kept: Vec<Option<Piece>> = Vec::new();
    for piece in pieces {
        let place = (piece.start, piece.end);
        let begun = open.remove(&place);
        match (piece.offset, begun) {
            (None, Some(begun)) => {
                kept[begun] = None;
                passing += 1;
            }
            (offset, _) => {
                if offset.is_some() {
                    open.insert(place, kept.len());
                }
                kept.push(Some(piece));
            }
        }
    }
    (kept.into_iter().flatten().collect(), passing)
}

#[cfg(test)]
mod tests {
    use pyobs_model::SegmentId;

    use super::*;

    #[test]
    fn what_came_and_went_is_left_out_and_counted() {
        let piece = |start, end, offset| Piece { segment: SegmentId(1), start, end, offset };
        let (old, new) = (piece(1, 3, None), piece(1, 3, Some(0)));
        let all = vec![old, new, old, piece(7, 9, Some(5)), new, piece(2, 3, None), old, new];
        let (kept, passing) = settled(all);
        // The second mapping is cut before it ends, so only its rest cancels out.
        assert_eq!(kept, [old, piece(7, 9, Some(5)), piece(2, 3, None), new]);
        assert_eq!(passing, 2);
    }
}
