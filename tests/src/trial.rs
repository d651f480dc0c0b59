//! Defines cases, and runs them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

use crate::{flaky, folder};

/// How many cases of one program may be retried. If more than this fail, the program is broken rather than flaky.
const SECOND_TRIES_MAX: usize = flaky::MOST;
static SECOND_TRIES: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of cases of one program that run at once. Only cases marked with [`Case::beside`] do.
const AT_ONCE: usize = 2;
/// A case that must run alone takes this lock for writing, any other for reading.
static ALONE: RwLock<()> = RwLock::new(());

/// How long each case took, to see which make the suite slow.
static TOOK: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());
/// How many of the slowest are shown.
const SLOWEST: usize = 3;

/// One test: a name that states the behaviour, what it needs, and what it does.
pub struct Case {
    name: String,
    missing: Vec<String>,
    beside: bool,
    body: Box<dyn Fn() + Send>,
}

pub fn case(name: impl Into<String>, body: impl Fn() + Send + 'static) -> Case {
    Case { name: name.into(), missing: Vec::new(), beside: false, body: Box::new(body) }
}

impl Case {
    /// Ignores the case, with the reason, if what it needs is missing; see [`crate::needs`].
    #[must_use]
    pub fn needs<T>(mut self, need: Result<T, String>) -> Self {
        self.missing.extend(need.err());
        self
    }

    /// Lets the case run beside another. It must neither measure time nor look at the whole machine.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

/// Runs the cases that the command line selects. Return the result from `main`.
pub fn run(cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    if !arguments.list {
        for case in cases.iter().filter(|case| !case.missing.is_empty() && selected(&arguments, &case.name)) {
            eprintln!("ignored {}: {}", case.name, case.missing.join("; "));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, cases.into_iter().map(trial).collect());
    let mut took = std::mem::take(&mut *TOOK.lock().unwrap_or_else(PoisonError::into_inner));
    took.sort_unstable();
    for (time, name) in took.iter().rev().take(SLOWEST) {
        eprintln!("slow: {:.0} s {name}", time.as_secs_f64());
    }
    if !conclusion.has_failed() {
        folder::remove_all();
    }
    conclusion.exit_code()
}

fn selected(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter.as_str()) };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

fn trial(case: Case) -> Trial {
    let Case { name, missing, beside, body } = case;
    let ignored = !missing.is_empty();
    let (title, of) = (name.clone(), name.clone());
    let body = move || {
        // A failed case leaves nothing half done that the lock protects, so poison is ignored.
        let _beside = beside.then(|| ALONE.read().unwrap_or_else(PoisonError::into_inner));
        let _alone = (!beside).then(|| ALONE.write().unwrap_or_else(PoisonError::into_inner));
        let since = Instant::now();
        body();
        TOOK.lock().unwrap_or_else(PoisonError::into_inner).push((since.elapsed(), of.clone()));
    };
    let test = move || {
        if missing.is_empty() {
            // A case that fails twice, or with many others, is broken. One that fails once is noted; too many notes
            // fail the run.
            if SECOND_TRIES.load(Relaxed) < SECOND_TRIES_MAX {
                if catch_unwind(AssertUnwindSafe(&body)).is_ok() {
                    return Ok(());
                }
                SECOND_TRIES.fetch_add(1, Relaxed);
                eprintln!("{name}: failed, retrying");
                body();
                flaky::note(&name);
                return Ok(());
            }
            body();
            return Ok(());
        }
        // The command line asked for ignored cases too.
        Err(missing.join("; ").into())
    };
    Trial::test(title, test).with_ignored_flag(ignored)
}
