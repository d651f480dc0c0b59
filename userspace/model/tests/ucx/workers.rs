//! Threads and their roles in transfers.

use super::*;

#[test]
fn roles_follow_from_what_threads_do() {
    let notifier = TransferThread { notified: 9, ..thread(NOTIFIER, 0, 0, 0) };
    let main = TransferThread { woken: 5, ..thread(MAIN, 100, 0, SECOND) };
    let roles = |progress| {
        let model = filled([main, progress, notifier].map(Event::TransferThread));
        let workers = views::workers(&model, &Selection::default());
        workers.iter().map(|worker| (worker.tid, worker.role, worker.mode)).collect::<Vec<_>>()
    };
    let expected =
        |mode| [(MAIN, Role::EventLoop, mode), (PROGRESS, Role::Progress, mode), (NOTIFIER, Role::Notifier, mode)];
    assert_eq!(roles(thread(PROGRESS, 0, 100, SECOND)), expected("thread"));
    assert_eq!(roles(thread(PROGRESS, 0, 100, 10 * SECOND)), expected("thread-polling"));
}

/// A thread that requested and completed this many transfers, and was awake this long.
fn completes(tid: Tid, registered: u64, completed: u64, awake: u64) -> TransferThread {
    TransferThread { completed, ..thread(tid, registered, 0, awake) }
}

fn modes(threads: &[TransferThread]) -> Vec<&'static str> {
    let model = filled(threads.iter().copied().map(Event::TransferThread));
    let workers = views::workers(&model, &Selection::default());
    workers.iter().filter(|worker| worker.role == Role::Progress).map(|worker| worker.mode).collect()
}

#[test]
fn a_progress_thread_is_recognized_even_if_it_requests_transfers() {
    let asks = thread(MAIN, 100, 0, SECOND);
    // If submissions are not delayed, it requests the parts that a header message announces.
    assert_eq!(modes(&[asks, completes(PROGRESS, 300, 400, SECOND)]), ["thread"]);
    assert_eq!(modes(&[asks, completes(PROGRESS, 300, 400, 10 * SECOND)]), ["thread-polling"]);
    // If they are delayed, it hands over one of the five parts of a whole, which another thread requested.
    let delayed = TransferThread { dispatched: 100, ..completes(PROGRESS, 400, 500, SECOND) };
    assert_eq!(modes(&[asks, delayed]), ["thread"]);
    // If transfers are only counted, the submitter is taken for the requester, and ends are not seen.
    let counted = TransferThread { dispatched: 100, ..completes(PROGRESS, 50_000, 100, SECOND) };
    assert_eq!(modes(&[asks, counted]), ["thread"]);
    // The requesting thread fetches what is left at the end.
    assert_eq!(modes(&[completes(MAIN, 100, 1, SECOND), completes(PROGRESS, 3, 100, SECOND)]), ["thread"; 2]);
    // Nobody requests active messages: the thread that is woken waits for them.
    let woken = TransferThread { woken: 5, ..thread(MAIN, 0, 0, SECOND) };
    assert_eq!(modes(&[woken, completes(PROGRESS, 3, 100, SECOND)]), ["thread"]);
    assert_eq!(modes(&[completes(PROGRESS, 0, 100, SECOND)]), ["thread"]);
}

#[test]
fn a_thread_that_makes_its_own_progress_is_not_dedicated() {
    assert_eq!(modes(&[completes(MAIN, 100, 60, SECOND)]), ["blocking"]);
    assert_eq!(modes(&[completes(MAIN, 100, 60, 10 * SECOND)]), ["polling"]);
    // The only thread of a program receives active messages.
    assert_eq!(modes(&[completes(MAIN, 0, 60, SECOND)]), ["blocking"]);
    // Each thread has its own worker.
    let own = [completes(MAIN, 100, 20, SECOND), completes(PROGRESS, 100, 90, SECOND)];
    assert_eq!(modes(&own), ["blocking"; 2]);
}

#[test]
fn the_report_and_findings_name_threads_with_their_roles() {
    // The event loop makes progress in between. The other thread does not work on transfers.
    let event_loop = TransferThread { woken: 5, ..thread(MAIN, 1, 1, SECOND) };
    let notifier = TransferThread { notified: 9, ..thread(NOTIFIER, 0, 0, 0) };
    let other = Event::Thread { process: PROCESS, tid: Tid(45), name: "pool".into() };
    let polls = thread(PROGRESS, 0, 500, 95 * SECOND / 10);
    let model = filled([event_loop, polls, notifier].map(Event::TransferThread).into_iter().chain([other]));
    let report = Report::new(&model, &Selection::default(), None);
    let roles: Vec<_> = report.processes[0].threads.iter().map(|thread| (thread.tid, thread.role)).collect();
    let expected =
        [(MAIN, Some("event_loop")), (PROGRESS, Some("progress")), (NOTIFIER, Some("notifier")), (Tid(45), None)];
    assert_eq!(roles, expected);
    let workers = report.workers.unwrap();
    for (tid, role) in roles {
        let own: Vec<_> = workers.iter().filter(|worker| worker.tid == tid).map(|worker| worker.role).collect();
        assert_eq!(role.is_none(), own.is_empty(), "{tid:?} is {own:?}");
        assert!(role.is_none_or(|role| own.contains(&role)), "{tid:?} is {own:?}");
    }
    let [finding] = &found(&model, "ucx/busy-poll")[..] else { panic!() };
    assert!(finding.summary.starts_with("thread 43 (python, progress) burns a core"), "{}", finding.summary);
}

/// One report a second. In the third second the thread did nothing, and the last report is at the end of the fourth.
#[test]
fn a_selected_time_has_only_the_work_in_it() {
    let word = |second: u64, completed, awake| TransferThread {
        at: Nanos(second * SECOND),
        completed,
        dispatched: completed,
        observed: Nanos(second * SECOND),
        awake: Nanos(awake * MS),
        ..thread(PROGRESS, 0, 0, 0)
    };
    let told = [word(1, 10, 500), word(2, 30, 1500), word(3, 30, 1500), word(4, 31, 1600)];
    let count = |second: u64| {
        let (process, library, operation) = (PROCESS, Library::Ucx, Operation::Put);
        let (at, spent) = (Nanos(second * SECOND), Nanos(0));
        let (immediate, failed, unfollowed, every) = (0, 0, 0, 1);
        Event::Transfers(Transfers {
            at,
            process,
            library,
            operation,
            count: second,
            bytes: 8,
            immediate,
            failed,
            spent,
            unfollowed,
            every,
        })
    };
    let model = filled(told.map(Event::TransferThread).into_iter().chain([1, 2].map(count)));
    let workers = |from: u64, to: Option<u64>, is_moving| {
        let (from, to) = (Some(Nanos(from * MS)), to.map(|to| Nanos(to * MS)));
        let selection = Selection { from, to, is_moving, ..Selection::default() };
        let rows = views::workers(&model, &selection);
        let sums = model.ucx().sums(&selection).into_values().map(|sum| sum.count).sum::<u64>();
        (rows.iter().map(|row| (row.thread.completed, row.busy)).collect::<Vec<_>>(), sums)
    };
    assert_eq!(workers(0, None, false), (vec![(31, 0.4)], 3));
    assert_eq!(workers(0, Some(1000), false).0, [(10, 0.5)]);
    // A report covers the second before it.
    assert_eq!(workers(1000, Some(2000), false), (vec![(20, 1.0)], 1));
    assert_eq!(workers(1400, Some(1500), false).0, [(20, 1.0)]);
    assert_eq!(workers(500, Some(1500), false).0, [(30, 0.75)]);
    assert_eq!(workers(2000, Some(3000), false), (vec![], 2), "it has no role then");
    assert_eq!(workers(4000, Some(9000), false), (vec![], 0));
    assert_eq!(workers(9000, None, true).0, [(31, 0.4)]);
}

#[test]
fn busy_polling_is_found() {
    let polls = |transfers, awake| filled([Event::TransferThread(thread(PROGRESS, 0, transfers, awake))]);
    let model = polls(500, 95 * SECOND / 10);
    let [finding] = &found(&model, "ucx/busy-poll")[..] else { panic!() };
    // 500 submitted and 500 completed in 10 s.
    assert!((number(finding, "transfers_per_s") - 100.0).abs() < 1e-9);
    assert!(found(&polls(500, 5 * SECOND), "ucx/busy-poll").is_empty());
    assert!(found(&polls(5000, 95 * SECOND / 10), "ucx/busy-poll").is_empty());
}

#[test]
fn computing_with_progress_in_between_is_not_busy_polling() {
    let calls = |progress| {
        let computes = completes(MAIN, 500, 500, 95 * SECOND / 10);
        filled([Event::TransferThread(TransferThread { progress, probed: Nanos(30 * MS), ..computes })])
    };
    assert!(found(&calls(30), "ucx/busy-poll").is_empty());
    assert!(found(&calls(0), "ucx/busy-poll").is_empty());
    let [finding] = &found(&calls(3000), "ucx/busy-poll")[..] else { panic!() };
    assert!((number(finding, "progress_per_s") - 1e5).abs() < 1e-6);
}
