//! Numbers as people read them.

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
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

/// A share of a whole, in percent; 0 when there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
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
    }
}
