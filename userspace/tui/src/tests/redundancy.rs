//! Synthetic memory accesses: a line that spends its time in dispatch, one that stores values that were already there, and one
//! with too little data.

use pyobs_model::{
    Access, CalledBy, Compared, Event, Nanos, NativeCall, Pair, PairKind, ProcessRef, StackId, Tid, Touched,
    Watchpoints,
};

use super::synthetic::waiting;

const PROCESS: ProcessRef = ProcessRef(0);
const TID: Tid = Tid(4242);

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

pub(super) fn access(ms: u64, stack: u32, touched: Option<Touched>, stores: bool) -> Event {
    Event::Access(Access {
        at: at(ms),
        process: PROCESS,
        tid: TID,
        stack: StackId(stack),
        weight: 1,
        touched,
        stores,
        element_of: None,
    })
}

fn call(ms: u64, stack: u32, callee: &str, compared: Compared) -> Event {
    let (stack, callee) = (StackId(stack), callee.into());
    Event::Call(NativeCall {
        at: at(ms),
        process: PROCESS,
        tid: TID,
        stack,
        callee,
        called_by: CalledBy::default(),
        compared,
    })
}

pub(crate) fn dispatching() -> Vec<Event> {
    let mut events = waiting();
    let object = |name: &str| Some(Touched::Metadata(Some(name.into())));
    let array = || Touched::Array("float64 400".into());
    for ms in 0..60 {
        let touched = if ms % 3 == 0 { Some(Touched::Static) } else { object("numpy.ndarray") };
        events.push(access(2_000 + ms, 6, touched, false));
        events.push(access(3_000 + ms, 11, Some(array()), ms % 2 == 0));
        events.push(call(3_000 + ms, 11, "cos", Compared::Arguments { varying: 0 }));
        events.push(call(3_500 + ms, 11, "cos", Compared::Result { same: true }));
        events.push(call(4_000 + ms, 6, "float64\u{1b}[31m", Compared::Arguments { varying: 2 }));
        let kind = if ms % 2 == 0 { PairKind::Load } else { PairKind::Store };
        events.push(Event::Pair(Pair {
            at: at(5_000 + ms),
            process: PROCESS,
            tid: TID,
            first: StackId(6),
            second: StackId(11),
            kind,
            touched: array(),
            address: None,
            bytes: 8,
            equal: ms != 31,
            unread: (kind == PairKind::Store).then_some(ms % 4 == 1),
        }));
    }
    events.push(access(6_000, 0, None, false));
    let counts = Watchpoints { samples: 121, undecoded: 1, armed: 100, traps: 400, ..Watchpoints::default() };
    events.push(Event::Watchpoints { at: at(6_001), counts });
    events.sort_by_key(Event::at);
    events
}
