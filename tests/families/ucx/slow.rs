//! Tests that a long transfer is reported before it ends.

use std::time::{Duration, Instant};

use pyobs_capture::session::Session;
use pyobs_model::{Event, Family, Nanos, Transfer, TransferChange, TransferId};
use pyobs_tests::{Case, Workload, case, needs, options};

use super::strange::Built;

pub(super) fn cases() -> Vec<Case> {
    let case = case("a_slow_transfer_is_reported_before_its_end", reported).needs(needs::root());
    vec![case.needs(needs::program("cc"))]
}

/// How long the program's only transfer takes.
const LENGTH: Nanos = Nanos(2_500_000_000);

fn reported() {
    let built = Built::new(&[]);
    let mut program = Workload::start(built.program("slow"));
    program.wait_for("ready");
    let mut session = Session::start(&options(program.pid(), &[Family::Ucx], 99)).unwrap();
    let mut events = Vec::new();
    let mut watch = |events: &mut Vec<Event>| session.poll(Duration::from_millis(100), events).unwrap();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        watch(&mut events);
    }
    program.signal(libc::SIGUSR1);
    while seen(&events).len() < 2 {
        assert!(since.elapsed() < Duration::from_secs(30), "{events:?}");
        watch(&mut events);
    }
    session.finish(&mut events);
    let [(at, open), (_, over)] = seen(&events)[..] else { panic!("{events:?}") };
    let (begun, ended) = (over.1.submitted.unwrap(), over.1.completed.unwrap());
    assert_eq!((open.0, open.1.submitted, open.1.completed), (over.0, Some(begun), None));
    let after = at.saturating_sub(begun);
    assert!(after >= Nanos(1_000_000_000) && at < ended, "after {after:?}");
    assert!(ended.saturating_sub(begun) >= LENGTH, "{over:?}");
}

/// The transfers that were reported, in order.
fn seen(events: &[Event]) -> Vec<(Nanos, (TransferId, Transfer))> {
    let one = |event: &Event| match event {
        Event::Transfer { at, id, change: TransferChange::Seen(transfer) } => Some((*at, (*id, **transfer))),
        _ => None,
    };
    events.iter().filter_map(one).collect()
}
