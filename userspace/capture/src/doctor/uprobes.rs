//! Probes on user-space functions, tried on a function of pyobs itself that is never called otherwise.

use std::fs;
use std::io;

use super::{Area, Check, sys, tracepoints::probe_type};
use crate::registry::with_probes;
use crate::rights;

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("tracing", checks);
    let todo = if rights::may_probe() {
        "run a kernel built with CONFIG_UPROBE_EVENTS=y"
    } else {
        "run it as root: probes on functions take CAP_SYS_ADMIN"
    };
    area.tried("uprobes", with_probes(), open(false), "one was put on a function of pyobs and taken off again", todo);
    area.tried("uretprobes", with_probes(), open(true), "one was put on a function of pyobs and taken off again", todo);
}

#[inline(never)]
extern "C" fn target() -> u32 {
    std::hint::black_box(0x7079_6f62)
}

fn open(at_return: bool) -> io::Result<()> {
    let kind = probe_type("uprobe").ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "the kernel was built without (CONFIG_UPROBE_EVENTS)")
    })?;
    let return_bit = if at_return { 1u64 << return_bit()? } else { 0 };
    let address = target as extern "C" fn() -> u32 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset = file_offset(&maps, address)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "pyobs's own code is not in /proc/self/maps"))?;
    let mut attributes = sys::event(kind, return_bit);
    attributes.__bindgen_anon_3.config1 = c"/proc/self/exe".as_ptr().addr() as u64;
    attributes.__bindgen_anon_4.config2 = offset;
    sys::open_event(&attributes, 0, -1)?;
    // Keeps the function in the program, outside the time that the probe exists.
    if target() == 0 { Err(io::Error::other("unreachable")) } else { Ok(()) }
}

/// `config:0` in the kernel's description of the event gives the bit for return probes.
fn return_bit() -> io::Result<u32> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/format/retprobe")?;
    let bit = text.trim().strip_prefix("config:").and_then(|bit| bit.parse().ok()).filter(|bit| *bit < 64);
    bit.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's uprobes have no return"))
}

/// The offset of the code at `address` in its file.
fn file_offset(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        (start..end).contains(&address).then(|| address - start + offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_mapping() {
        let maps = "1000-2000 r--p 00000000 fe:00 1 /bin/a\n2000-4000 r-xp 00001000 fe:00 1 /bin/a\n";
        assert_eq!(file_offset(maps, 0x2010), Some(0x1010));
        assert_eq!(file_offset(maps, 0x4000), None);
    }
}
