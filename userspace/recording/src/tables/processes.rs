//! Processes and their threads.

use std::rc::Rc;
use std::sync::Arc;

use pyobs_model::{Container, Event, Nanos, Pid, Placement, Process, ProcessRef, Tid};
use rusqlite::{Connection, Result, params};

use super::scan::Dense;
use super::{Reading, Rows, Span};
use crate::Error;
use crate::merge::{IN_ORDER, Merge};
use crate::table::{Table, tables};
use crate::value::integer;

tables! {
    /// One run of one program. A reused pid and an `exec` each start a new row.
    #[upsert(known: id => pid, ppid, command, python, started_ns)]
    ProcessRow in "processes" {
        #[key] id: ProcessRef = "number, from 0",
        pid: Pid = "process id in the host's namespace",
        ppid: Pid = "pid of the parent",
        command: Arc<str> = "the command line, separated by spaces; the kernel's short name if it is empty",
        python: Option<Arc<str>> = "version of the interpreter, such as `3.12.1`; NULL for a process without CPython",
        started_ns: Option<Nanos> = "NULL if it started before the recording",
        ended_ns: Option<Nanos> = "NULL if it was still running at the end",
    }

    /// Where processes run. Older recordings have no rows.
    #[insert(OR REPLACE)]
    PlacementRow in "placements" {
        #[key] process: ProcessRef = "`processes.id`",
        uid: Option<u32> = "the user's number on the host",
        user: Option<Arc<str>> = "the user's name on the host",
        cgroup: Option<Arc<str>> = "control group, from the root of the hierarchy",
        container: Option<Arc<str>> = "the container's id; NULL for a process in none, and so are the columns below",
        engine: Option<Arc<str>> = "`docker`, `podman`, `containerd` or `cri-o`",
        name: Option<Arc<str>> = "the container's name",
        image: Option<Arc<str>> = "its image",
        pod_uid: Option<Arc<str>> = "in Kubernetes: the pod's unique id",
        pod: Option<Arc<str>> = "the pod's name",
        namespace: Option<Arc<str>> = "the pod's namespace",
    }

    #[unique(process, tid)]
    #[upsert(named: process, tid => name)]
    ThreadRow in "threads" {
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id in the host's namespace",
        name: Arc<str> = "the latest name",
    }
}

pub(crate) fn process(connection: &Connection, id: ProcessRef, process: &Process) -> Result<()> {
    let Process { pid, ppid, command, python, started } = process.clone();
    ProcessRow { id, pid, ppid, command, python, started_ns: started, ended_ns: None }.known(connection)
}

pub(crate) fn ended(connection: &Connection, id: ProcessRef, at: Nanos) -> Result<()> {
    let sql = "UPDATE processes SET ended_ns = ?2 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![id.0, integer(at.0)])?;
    Ok(())
}

pub(crate) fn placement(connection: &Connection, process: ProcessRef, placement: &Placement) -> Result<()> {
    let Placement { uid, user, cgroup, container } = placement.clone();
    let container = container.as_deref();
    let text = |text: Option<&str>| text.map(Arc::from);
    let of = |field: fn(&Container) -> Option<&str>| text(container.and_then(field));
    let row = PlacementRow {
        process,
        uid,
        user,
        cgroup,
        container: of(|container| Some(&container.id)),
        engine: of(|container| container.engine.as_deref()),
        name: of(|container| container.name.as_deref()),
        image: of(|container| container.image.as_deref()),
        pod_uid: of(|container| container.pod_uid.as_deref()),
        pod: of(|container| container.pod.as_deref()),
        namespace: of(|container| container.namespace.as_deref()),
    };
    row.insert(connection)
}

fn placed(row: PlacementRow) -> Placement {
    let PlacementRow { uid, user, cgroup, container, engine, name, image, pod_uid, pod, namespace, .. } = row;
    let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
    let container = container.map(|id| {
        Arc::new(Container {
            engine: text(engine),
            id: id.to_string(),
            name: text(name),
            image: text(image),
            pod_uid: text(pod_uid),
            pod: text(pod),
            namespace: text(namespace),
        })
    });
    Placement { uid, user, cgroup, container }
}

pub(crate) fn thread(connection: &Connection, process: ProcessRef, tid: Tid, name: &Arc<str>) -> Result<()> {
    ThreadRow { process, tid, name: Arc::clone(name) }.named(connection)
}

/// How long before its start a process is defined: events can arrive late, and start times are rounded.
const EARLY: Nanos = Nanos(10_000_000_000);

/// A time before all events of a process; 0 if its row does not tell.
fn defined(started: Option<Nanos>, ended: Option<Nanos>) -> Nanos {
    let started = started.filter(|started| ended.is_none_or(|ended| *started <= ended));
    started.unwrap_or_default().saturating_sub(EARLY)
}

/// Emits each definition shortly before its process starts, because all of them may not fit in memory. Rows are in the order of
/// discovery, so a row is due no earlier than the rows before it.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let (mut ids, mut due) = (Dense::default(), Nanos(0));
    merge.table(reading, Rows::All, IN_ORDER, move |_, row: ProcessRow, events| {
        let ProcessRow { id, pid, ppid, command, python, started_ns: started, ended_ns: ended } = row;
        due = due.max(defined(started, ended));
        for missing in ids.missing(id.0)? {
            events.push_at(due, Event::Process { id: ProcessRef(missing), process: unknown() });
        }
        events.push_at(due, Event::Process { id, process: Process { pid, ppid, command, python, started } });
        Some(())
    })?;
    let dues = Rc::new(Dues::of(reading)?);
    let (of_placements, mut due) = (Rc::clone(&dues), Nanos(0));
    merge.table(reading, Rows::All, IN_ORDER, move |_, row: PlacementRow, events| {
        let process = row.process;
        due = due.max(of_placements.get(process)?);
        events.push_at(due, Event::Placement { process, placement: placed(row) });
        Some(())
    })?;
    let mut due = Nanos(0);
    merge.table(reading, Rows::All, IN_ORDER, move |_, row: ThreadRow, events| {
        let ThreadRow { process, tid, name } = row;
        due = due.max(dues.get(process)?);
        events.push_at(due, Event::Thread { process, tid, name });
        Some(())
    })
}

/// When the definitions of processes are due, by blocks of ids.
#[derive(Default)]
struct Dues {
    /// When the last definition of each block is due.
    blocks: Vec<Nanos>,
    /// The highest id.
    last: u64,
}

impl Dues {
    const BLOCK: u64 = 64;
    /// A longer run of blocks without rows is not accidental damage.
    const GAP_MAX: usize = 1 << 10;

    fn of(reading: &mut Reading<'_>) -> Result<Self, Error> {
        let (mut dues, mut due) = (Self::default(), Nanos(0));
        reading.quietly(|reading| {
            if reading.query::<ProcessRow>(Rows::All)?.is_none() {
                return Ok(dues);
            }
            let table = ProcessRow::TABLE.name;
            let query = reading.query_of(table, &["started_ns", "ended_ns"], Rows::All);
            reading.walk(table, &query, Span::ALL, |_, id, row| {
                let time = |index| u64::try_from(row.get_ref(index).ok()?.as_i64().ok()?).ok().map(Nanos);
                due = due.max(defined(time(1), time(2)));
                let Ok(id) = u64::try_from(id) else { return };
                let block = (id / Self::BLOCK) as usize;
                if block <= dues.blocks.len() + Self::GAP_MAX {
                    dues.blocks.resize(block + 1, due);
                    dues.blocks[block] = due;
                    dues.last = id;
                }
            })?;
            Ok(dues)
        })
    }

    /// `None` if there is no such process.
    fn get(&self, process: ProcessRef) -> Option<Nanos> {
        let id = u64::from(process.0);
        self.blocks.get((id / Self::BLOCK) as usize).filter(|_| id <= self.last).copied()
    }
}

/// Emits the ends, which have a time.
pub(crate) fn read_ends(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.again(reading, &["ended_ns"], |row: ProcessRow, events| {
        events.extend(row.ended_ns.map(|at| Event::ProcessEnd { id: row.id, at }));
    })
}

/// A placeholder for a process whose row is damaged, so that later ones keep their numbers.
fn unknown() -> Process {
    Process { pid: Pid(0), ppid: Pid(0), command: Arc::from("?"), python: None, started: None }
}
