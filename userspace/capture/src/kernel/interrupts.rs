//! The address range of the running kernel's interrupt code. A stack that passes through it was not caused by
//! the thread it is on.

use std::io::{BufRead, BufReader};

/// Start and end; both 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCode {
    pub start: u64,
    pub end: u64,
}

impl EntryCode {
    /// The section of interrupt entry code (`IRQENTRY_TEXT` in
    /// <https://github.com/torvalds/linux/blob/v6.1/include/asm-generic/vmlinux.lds.h>), from `/proc/kallsyms`.
    pub fn of_running_kernel() -> Self {
        std::fs::File::open("/proc/kallsyms").map_or_else(|_| Self::default(), |file| Self::parse(BufReader::new(file)))
    }

    fn parse(symbols: impl BufRead) -> Self {
        let (mut start, mut end) = (None, None);
        for line in symbols.lines().map_while(Result::ok) {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(name)) = (words.next(), words.nth(1)) else { continue };
            let found = match name {
                "__irqentry_text_start" => &mut start,
                "__irqentry_text_end" => &mut end,
                _ => continue,
            };
            *found = u64::from_str_radix(address, 16).ok();
            if start.is_some() && end.is_some() {
                break;
            }
        }
        match (start, end) {
            (Some(start), Some(end)) if start < end => Self { start, end },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_addresses_are_none() {
        let shown = "ffffffff81000300 T __irqentry_text_start\n\
                     ffffffff81000df0 T asm_sysvec_apic_timer_interrupt\n\
                     ffffffff81000f70 T __irqentry_text_end\n";
        let expected = EntryCode { start: 0xffff_ffff_8100_0300, end: 0xffff_ffff_8100_0f70 };
        assert_eq!(EntryCode::parse(shown.as_bytes()), expected);
        let hidden = "0000000000000000 T __irqentry_text_start\n0000000000000000 T __irqentry_text_end\n";
        assert_eq!(EntryCode::parse(hidden.as_bytes()), EntryCode::default());
        assert_eq!(EntryCode::parse(&b"garbage\n\xff\xfe\n"[..]), EntryCode::default());
    }
}
