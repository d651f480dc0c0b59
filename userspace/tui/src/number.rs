//! Numbers as people read them.

use pyobs_model::Nanos;
use pyobs_model::views::{Unit, Weight};

/// `12345678` as `12,345,678`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// At most five characters: `999`, `12.3k`, `4.56M`.
pub(crate) fn short(number: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if number < 1000 {
        return number.to_string();
    }
    let mut value = number as f64;
    let mut unit = "";
    for next in UNITS {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    format!("{}{unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A length of time, of at most eight characters: `7 ns`, `29.7 µs`, `5.00 ms`, `12.3 s`, `16.7 min`.
pub(crate) fn time(time: Nanos) -> String {
    const UNITS: [(&str, f64); 6] = [("µs", 1e3), ("ms", 1e3), ("s", 1e3), ("min", 60.0), ("h", 60.0), ("d", 24.0)];
    if time.0 < 1000 {
        return format!("{} ns", time.0);
    }
    let mut value = time.0 as f64;
    let mut unit = "ns";
    for (next, factor) in UNITS {
        if value < 999.5 {
            break;
        }
        value /= factor;
        unit = next;
    }
    format!("{} {unit}", three_digits(value))
}

/// What a frame weighs.
pub(crate) fn amount(weight: Weight, number: u64) -> String {
    match weight.unit() {
        Unit::Samples => count(number),
        Unit::Nanoseconds => time(Nanos(number)),
        Unit::Bytes => bytes(number),
    }
}

/// The same in at most eight characters.
pub(crate) fn short_amount(weight: Weight, number: u64) -> String {
    match weight.unit() {
        Unit::Samples => short(number),
        Unit::Nanoseconds => time(Nanos(number)),
        Unit::Bytes => bytes(number),
    }
}

/// What shares are of.
pub(crate) fn whole(weight: Weight, number: u64) -> String {
    match weight {
        Weight::Cpu => format!("{} of CPU", time(Nanos(number))),
        Weight::Redundant => plural(number, "sample", "samples"),
        Weight::OffCpu => format!("{} off CPU", time(Nanos(number))),
        Weight::Gil => format!("{} of waits for the GIL", time(Nanos(number))),
        Weight::Bytes => format!("{} held", bytes(number)),
    }
}

/// A share of a whole, in percent; 0 when there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// How many, on average: `0.24`, `3.1`.
pub(crate) fn two_digits(value: f64) -> String {
    let decimals = if value < 9.95 { 2 - usize::from(value >= 0.995) } else { 0 };
    format!("{value:.decimals$}")
}

/// A percentage of at most five characters.
pub(crate) fn percent(value: f64) -> String {
    if value >= 999.95 { format!("{value:.0}") } else { format!("{value:.1}") }
}

pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = usize::from(unit != "B" && value < 9.95);
    format!("{value:.decimals$} {unit}")
}

/// A length of time: `12 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn seconds(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A time within a length, as a player shows it: `12.3/60.0 s`, `2:05/59:59`, `0:02:05/1:00:00`.
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

/// `1 process`, `2 processes`.
pub(crate) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_shortened() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(short(999), "999");
        assert_eq!(short(1234), "1.23k");
        assert_eq!(short(99_949), "99.9k");
        assert_eq!(short(999_499), "999k");
        assert_eq!(short(999_500), "1.00M");
        assert_eq!(short(u64::MAX), "18.4E");
    }

    #[test]
    fn a_clock_has_as_many_digits_as_its_length() {
        let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
        assert_eq!(clock(Nanos(12_340_000_000), second(60)), "12.3/60.0 s");
        assert_eq!(clock(second(125), second(3599)), "2:05/59:59");
        assert_eq!(clock(second(125), second(3600)), "0:02:05/1:00:00");
    }

    #[test]
    fn shares_of_nothing_are_nothing() {
        assert_eq!(percent(share(1, 0)), "0.0");
        assert_eq!(percent(share(1, 3)), "33.3");
        assert_eq!(percent(6400.0), "6400");
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(41 << 20), "41 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(seconds(9.96), "10.0 s");
        assert_eq!(seconds(200.0), "3 min 20 s");
        assert_eq!(seconds(7500.0), "2 h 5 min");
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (29_700, "29.7 µs"),
            (999_600, "1.00 ms"),
            (5_000_000, "5.00 ms"),
            (61_000_000_000, "61.0 s"),
            (1_000_000_000_000, "16.7 min"),
            (59_999_000_000_000, "16.7 h"),
            (u64::MAX, "213504 d"),
        ] {
            assert_eq!(time(Nanos(nanos)), text);
        }
    }
}
