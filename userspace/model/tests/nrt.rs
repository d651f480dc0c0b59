//! MemInfos by birth line.

use pyobs_model::report::Report;
use pyobs_model::{
    Event, History, MemInfoChange, MemInfoId, Meta, Model, Nanos, Pid, Process, ProcessRef, Selection, StackId,
};

const SITES: u32 = 40_000;

#[test]
fn sites_without_live_meminfos_are_forgotten_but_counted() {
    let probes = vec!["nrt".to_owned()];
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All);
    let process = Process { pid: Pid(7), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    for number in 0..SITES {
        let (id, at) = (MemInfoId(number), Nanos(u64::from(number)));
        model.apply(&Event::Stack { id: StackId(number), frames: [].into() });
        let born = MemInfoChange::Born { process: ProcessRef(0), bytes: 8, data: 0, stack: StackId(number) };
        model.apply(&Event::MemInfo { at, id, change: born });
        if number != 5 {
            model.apply(&Event::MemInfo { at, id, change: MemInfoChange::Died });
        }
    }
    assert!(model.nrt().sums().count() <= 1 << 14);
    let meminfos = Report::new(&model, &Selection::default(), None).meminfos.unwrap();
    assert_eq!((meminfos.born, meminfos.died, meminfos.live), (SITES.into(), u64::from(SITES) - 1, 1));
    assert_eq!(meminfos.sites[0].live, 1, "the one that lives is there");
}
