//! Formats numbers for the dashboard.

use pyobs_model::Nanos;
pub(crate) use pyobs_model::number::{grouped, plural, short, size, time};
use pyobs_model::views::{Unit, Weight};

/// A frame's weight.
pub(crate) fn amount(weight: Weight, number: u64) -> String {
    match weight.unit() {
        Unit::Samples => grouped(number),
        Unit::Nanoseconds => time(Nanos(number)),
        Unit::Bytes => size(number),
    }
}

/// A frame's weight in at most eight characters.
pub(crate) fn short_amount(weight: Weight, number: u64) -> String {
    match weight.unit() {
        Unit::Samples => short(number),
        Unit::Nanoseconds => time(Nanos(number)),
        Unit::Bytes => size(number),
    }
}

/// The total that shares refer to.
pub(crate) fn whole(weight: Weight, number: u64) -> String {
    match weight {
        Weight::Cpu => format!("{} of CPU", time(Nanos(number))),
        Weight::Redundant => plural(number, "sample", "samples"),
        Weight::OffCpu => format!("{} off CPU", time(Nanos(number))),
        Weight::Gil => format!("{} of waits for the GIL", time(Nanos(number))),
        Weight::Bytes => format!("{} held", size(number)),
    }
}

/// A share of a whole, in percent; 0 when there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// An average count: `0.24`, `3.1`.
pub(crate) fn two_digits(value: f64) -> String {
    let decimals = if value < 9.95 { 2 - usize::from(value >= 0.995) } else { 0 };
    format!("{value:.decimals$}")
}

/// A percentage of at most five characters.
pub(crate) fn percent(value: f64) -> String {
    if value >= 999.95 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A duration: `12 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn seconds(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A position within a duration, as media players show it: `12.3/60.0 s`, `2:05/59:59`, `0:02:05/1:00:00`.
pub(crate) fn clock(at: Nanos, length: Nanos) -> String {
    let whole = |time: Nanos| time.0 / 1_000_000_000;
    let digits = |time: Nanos| match (whole(time), whole(length)) {
        (_, 0..100) => format!("{:.1}", time.as_secs_f64()),
        (time, 100..3600) => format!("{}:{:02}", time / 60, time % 60),
        (time, _) => format!("{}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60),
    };
    let unit = if whole(length) < 100 { " s" } else { "" };
    format!("{}/{}{unit}", digits(at), digits(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_as_many_digits_as_its_length() {
        let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
        assert_eq!(clock(Nanos(12_340_000_000), second(60)), "12.3/60.0 s");
        assert_eq!(clock(second(125), second(3599)), "2:05/59:59");
        assert_eq!(clock(second(125), second(3600)), "0:02:05/1:00:00");
    }

    #[test]
    fn a_share_of_nothing_is_zero() {
        assert_eq!(percent(share(1, 0)), "0.0");
        assert_eq!(percent(share(1, 3)), "33.3");
        assert_eq!(percent(6400.0), "6400");
    }

    #[test]
    fn a_duration_has_units() {
        assert_eq!(seconds(9.96), "10.0 s");
        assert_eq!(seconds(200.0), "3 min 20 s");
        assert_eq!(seconds(7500.0), "2 h 5 min");
    }
}
