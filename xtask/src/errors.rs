//! How a verb fails: with one sentence, and an exit code that tells usage errors from missing requirements.

use std::{fmt, process::ExitCode};

use anyhow::{Error, Result};

/// An error with an exit code other than 1.
#[derive(Debug)]
enum Failure {
    Usage(String),
    Lacking(String),
    /// A child has already printed what is wrong.
    Reported(u8),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Lacking(sentence) => f.write_str(sentence),
            Self::Reported(code) => write!(f, "exit code {code}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The arguments are wrong.
pub(crate) fn usage<T>(sentence: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(sentence.into()).into())
}

/// The machine, or the user's rights, lack something.
pub(crate) fn lacking(sentence: impl Into<String>) -> Error {
    Failure::Lacking(sentence.into()).into()
}

/// Ends with a child's exit code, without adding to what the child printed.
pub(crate) fn reported(code: Option<i32>) -> Error {
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Failure::Reported(code.max(1)).into()
}

pub(crate) fn report(error: &Error) -> ExitCode {
    let code = match error.downcast_ref::<Failure>() {
        Some(Failure::Reported(code)) => return ExitCode::from(*code),
        Some(Failure::Usage(_)) => 2,
        Some(Failure::Lacking(_)) => 3,
        None => 1,
    };
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}
