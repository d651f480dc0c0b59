//! Tests of library arenas, with handmade hits.

use pyobs_abi::record::Header;

use super::*;

/// A library with contexts: makes hits and collects their events.
struct Library {
    lifecycle: Lifecycles,
    kind: Arc<str>,
    time: u64,
    events: Vec<Event>,
}

impl Library {
    fn new() -> Self {
        Self { lifecycle: Lifecycles::new(Ids::default()), kind: Arc::from("lib"), time: 0, events: Vec::new() }
    }

    fn hit(&mut self, role: Role, values: &[(usize, u64)]) {
        self.time += 1;
        let header = Header { pid: 7, tid: 8, time: self.time, ..Header::default() };
        let mut hit = Hit { header, ..Hit::default() };
        for (index, value) in values {
            hit.values[*index] = *value;
            hit.known |= 1 << index;
        }
        let of = Where { hit: &hit, at: Nanos(self.time), process: ProcessRef(0), library: 0, kind: &self.kind };
        self.lifecycle.hit(role, &of, &mut self.events);
    }

    fn open(&mut self, context: u64) {
        self.hit(Role::Opened, &[(value::CONTEXT, context), (value::BYTES, 100)]);
    }

    fn close(&mut self, context: u64, popped: u64) {
        self.hit(Role::Closed, &[(value::CONTEXT, context), (value::POPPED, popped)]);
    }

    fn born(&mut self, object: u64, arena: u64) {
        self.hit(Role::ObjectBorn, &[(value::OBJECT, object), (value::ARENA, arena)]);
    }

    fn died(&mut self, object: u64, uses: u64) {
        self.hit(Role::ObjectDied, &[(value::OBJECT, object), (value::USES, uses)]);
    }

    /// The events of one arena in short form.
    fn reported(&self, id: u32) -> Vec<String> {
        let own = self.events.iter().filter_map(|event| match event {
            Event::Arena { id: ArenaId(of), change, .. } if *of == id => Some(match change {
                ArenaChange::Begun(arena) => format!("begun {:x}", arena.address),
                ArenaChange::Objects(sum) => format!("{}-{} in {}: {}", sum.born, sum.dead, sum.slabs, sum.bytes),
                ArenaChange::Closed { escaped, popped } => format!("closed {escaped} {popped}"),
                ArenaChange::Died => "died".to_owned(),
                other => panic!("{other:?}"),
            }),
            _ => None,
        });
        own.collect()
    }
}

#[test]
fn an_arena_that_nothing_escapes_from_dies_when_it_is_closed() {
    let mut library = Library::new();
    library.open(1);
    library.hit(Role::SlabAdded, &[]);
    library.born(10, 0xa0);
    library.died(10, 2);
    library.close(1, 1);
    assert_eq!(library.reported(0), ["begun 0", "begun a0", "1-1 in 1: 100", "died"]);
    // The same address now belongs to another arena.
    library.open(1);
    library.born(10, 0xa0);
    library.lifecycle.tick(Nanos(99), &mut library.events);
    assert_eq!(library.reported(1), ["begun 0", "begun a0", "1-0 in 1: 100"]);
}

#[test]
fn the_last_owner_ends_an_arena_that_was_popped() {
    let mut library = Library::new();
    library.open(1);
    library.born(10, 0xa0);
    library.born(11, 0xa0);
    library.close(1, 1);
    library.close(1, 1);
    library.died(10, 2);
    library.died(11, 1);
    library.died(11, 1);
    assert_eq!(library.reported(0), ["begun 0", "begun a0", "2-0 in 1: 100", "closed 2 true", "2-2 in 1: 100", "died"]);
    assert!(matches!(library.lifecycle.stack(8), Some(Wanted::Escape { .. })));
    assert!(library.lifecycle.stack(8).is_none());
}

#[test]
fn one_that_was_not_popped_lives_on() {
    let mut library = Library::new();
    library.open(1);
    library.born(10, 0xa0);
    library.close(1, 0);
    library.born(11, 0xa0);
    library.died(10, 2);
    library.died(11, 2);
    library.lifecycle.tick(Nanos(99), &mut library.events);
    assert_eq!(library.reported(0), ["begun 0", "begun a0", "1-0 in 1: 100", "closed 1 false", "2-2 in 1: 100"]);
    library.lifecycle.ended(7, Nanos(100), &mut library.events);
    assert!(
        library.lifecycle.live.is_empty()
            && library.lifecycle.addresses.is_empty()
            && library.lifecycle.contexts.is_empty()
    );
}

#[test]
fn contexts_nest_and_a_library_without_arenas_has_one() {
    let mut library = Library::new();
    library.open(1);
    library.open(2);
    library.born(10, 0xb0);
    library.born(11, 0xa0);
    library.died(10, 0);
    library.close(2, 1);
    library.died(11, 0);
    library.close(1, 1);
    assert_eq!(library.reported(1), ["begun 0", "begun b0", "1-1 in 1: 100", "died"]);
    assert_eq!(library.reported(0), ["begun 0", "begun a0", "1-1 in 1: 100", "died"]);
    library.hit(Role::ObjectBorn, &[(value::OBJECT, 20), (value::BYTES, 640)]);
    library.hit(Role::ObjectBorn, &[(value::OBJECT, 21), (value::BYTES, 60)]);
    library.died(20, 0);
    library.died(22, 0);
    library.lifecycle.tick(Nanos(99), &mut library.events);
    assert_eq!(library.reported(2), ["begun 0", "2-1 in 0: 60"]);
    library.hit(Role::Destroyed, &[(value::ARENA, 0xff)]);
}

#[test]
fn one_that_was_kept_is_let_go_of_when_it_is_closed_again() {
    let mut library = Library::new();
    library.open(1);
    library.born(10, 0xa0);
    library.close(1, 0);
    library.close(1, 0);
    library.died(10, 2);
    library.close(1, 1);
    let reported = ["begun 0", "begun a0", "1-0 in 1: 100", "closed 1 false", "1-1 in 1: 100", "died"];
    assert_eq!(library.reported(0), reported);
}

/// The library revives a dead object when another object refers to it, and no probe sees that.
#[test]
fn a_kept_arena_counts_at_least_one_object() {
    let mut library = Library::new();
    library.open(1);
    library.born(10, 0xa0);
    library.died(10, 2);
    library.close(1, 0);
    assert_eq!(library.reported(0), ["begun 0", "begun a0", "1-1 in 1: 100", "closed 1 false"]);
}

/// What cuDF does: a launch, a column in its array, a launch that frees the array; then the same without the
/// last launch, and launches of other kinds.
#[test]
fn arrays_not_freed_by_a_launch_remain() {
    let mut library = Library::new();
    let column = |library: &mut Library, array| library.hit(Role::ObjectBorn, &[(value::OBJECT, array)]);
    let launch = |library: &mut Library, first| library.hit(Role::ObjectDied, &[(value::OBJECT, first)]);
    launch(&mut library, 0x7f00);
    column(&mut library, 0x7f00);
    // The constructor without a stream calls the one with a stream.
    column(&mut library, 0x7f00);
    library.hit(Role::ObjectDied, &[]);
    launch(&mut library, 0x1234);
    launch(&mut library, 0x7f00);
    launch(&mut library, 0x7f00);
    column(&mut library, 0x7f00);
    library.lifecycle.ended(7, Nanos(99), &mut library.events);
    assert_eq!(library.reported(0), ["begun 0", "2-1 in 0: 0"]);
}
