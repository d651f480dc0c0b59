//! Cases, and the program that runs them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Trial};

use crate::{flaky, folder};

/// How many cases of one program may be tried twice: with many others, what fails is broken.
const SECOND_TRIES_MAX: usize = flaky::MOST;
static SECOND_TRIES: AtomicUsize = AtomicUsize::new(0);

/// How many cases of one program run at once, of those that may.
const AT_ONCE: usize = 2;
/// A case that must be alone holds it for writing, the others for reading.
static ALONE: RwLock<()> = RwLock::new(());

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
    /// Makes the case an ignored one, with the reason, when what it needs is not here; see [`crate::needs`].
    #[must_use]
    pub fn needs<T>(mut self, need: Result<T, String>) -> Self {
        self.missing.extend(need.err());
        self
    }

    /// Lets the case run beside another: it neither measures time nor looks at what all of the machine does.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

/// Runs the cases that the command line selects. To be returned from `main`.
pub fn run(cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    if !arguments.list {
        for case in cases.iter().filter(|case| !case.missing.is_empty() && selected(&arguments, &case.name)) {
            eprintln!("ignored {}: {}", case.name, case.missing.join("; "));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, cases.into_iter().map(trial).collect());
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
    let title = name.clone();
    let body = move || {
        // A case that failed while it held the lock has left nothing half done behind it.
        let _beside = beside.then(|| ALONE.read().unwrap_or_else(PoisonError::into_inner));
        let _alone = (!beside).then(|| ALONE.write().unwrap_or_else(PoisonError::into_inner));
        body();
    };
    let test = move || {
        if missing.is_empty() {
            // What fails twice, or with many others, is broken. What fails once is noted, and fails the run if there is more of it.
            if SECOND_TRIES.load(Relaxed) < SECOND_TRIES_MAX {
                if catch_unwind(AssertUnwindSafe(&body)).is_ok() {
                    return Ok(());
                }
                SECOND_TRIES.fetch_add(1, Relaxed);
                eprintln!("{name}: failed, and is tried again");
                body();
                flaky::note(&name);
                return Ok(());
            }
            body();
            return Ok(());
        }
        // Somebody asked for the ignored ones.
        Err(missing.join("; ").into())
    };
    Trial::test(title, test).with_ignored_flag(ignored)
}
