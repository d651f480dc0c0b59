//! Arenas of libraries.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use pyobs_model::families::arena::{ArenaState, Cause};
use pyobs_model::{
    Arena, ArenaChange, ArenaId, Event, History, Meta, Model, Nanos, Objects, Pid, Process, ProcessRef, Selection,
    findings,
};

fn of(changes: &[ArenaChange]) -> Model {
    let probes = vec!["arena".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    for (change, at) in [begun(0)].iter().chain(changes).zip(1..) {
        model.apply(&Event::Arena { at: Nanos(at), id: ArenaId(0), change: change.clone() });
    }
    model
}

fn begun(address: u64) -> ArenaChange {
    let (process, kind) = (ProcessRef(0), "lib".into());
    ArenaChange::Begun(Arena { process, kind, address, bytes: 0, born: true, parent: None })
}

fn state(model: &Model) -> &ArenaState {
    model.arenas().get(ArenaId(0)).unwrap()
}

fn leaks(model: &Model) -> usize {
    let found = findings::find(model, &Selection::default());
    found.iter().filter(|finding| finding.id == "arena/leaked").count()
}

#[test]
fn later_facts_belong_to_the_same_arena() {
    let model = of(&[begun(0xa0), ArenaChange::Objects(Objects { born: 3, dead: 1, slabs: 2, bytes: 512 })]);
    let state = state(&model);
    assert_eq!((state.arena.address, state.arena.bytes, state.generation, state.begun), (0xa0, 512, 1, Nanos(1)));
    assert_eq!((state.objects.born, state.objects.dead), (3, 1));
    assert_eq!(leaks(&model), 0);
}

#[test]
fn a_closed_arena_that_is_not_dropped_has_leaked() {
    let closed = |popped| ArenaChange::Closed { escaped: 1, popped };
    assert_eq!(leaks(&of(&[closed(false)])), 1);
    assert_eq!(leaks(&of(&[closed(true)])), 0);
    let ended = of(&[closed(true), ArenaChange::Died]);
    assert_eq!(state(&ended).died, Some((Nanos(3), Cause::LastOwner)));
    assert_eq!(leaks(&of(&[closed(false), ArenaChange::Died])), 0);
    assert_eq!(state(&of(&[ArenaChange::Died])).died, Some((Nanos(2), Cause::Freed)));
}
