//! Formats numbers for people.

use crate::Nanos;

/// `12345678` as `12,345,678`.
pub fn grouped(number: u64) -> String {
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

/// `1 process`, `2,000 processes`.
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// At most five characters: `999`, `12.3k`, `4.56M`.
pub fn short(number: u64) -> String {
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

/// A duration in at most eight characters: `7 ns`, `29.7 µs`, `5.00 ms`, `12.3 s`, `16.7 min`.
pub fn time(time: Nanos) -> String {
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

/// `512 B`, `1.5 KiB`, `41 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // Rounding would give 1024 of this unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = usize::from(unit != "B" && value < 9.95);
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_shortened() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(short(999), "999");
        assert_eq!(short(1234), "1.23k");
        assert_eq!(short(99_949), "99.9k");
        assert_eq!(short(999_499), "999k");
        assert_eq!(short(999_500), "1.00M");
        assert_eq!(short(u64::MAX), "18.4E");
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(41 << 20), "41 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
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
