//! Tests the regions that buffers lie in, with a libucp of the tests' own (workloads/ucp.c) and a program that knows
//! where it put the buffers.

use pyobs_tests::{Case, Folder, Recording, case, json, needs, shared_library_named, workload};
use serde_json::Value;

use super::record;

pub(super) fn cases() -> Vec<Case> {
    let case = case("a_buffer_has_its_region_and_the_line_that_made_it", buffers).needs(needs::root());
    vec![case.needs(needs::program("cc")).needs(needs::python(VERSION))]
}

const VERSION: &str = "3.12";

/// Prints a line of JSON with the buffers' addresses, in the order of their tags.
const PROGRAM: &str = "
import ctypes, json, sys, time
from multiprocessing import shared_memory
library = ctypes.CDLL(sys.argv[1])
library.ucp_tag_send_nbx.restype = ctypes.c_void_p
library.ucp_tag_send_nbx.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p]
library.ucp_request_free.argtypes = [ctypes.c_void_p]
library.ucp_worker_progress.argtypes = [ctypes.c_void_p]
time.sleep(1)

def fill():
    return [bytes(300) for _ in range(20_000)]

def share():
    return shared_memory.SharedMemory(create=True, size=1 << 20)

def send(address, tag):
    parameters = ctypes.create_string_buffer(72)
    request = library.ucp_tag_send_nbx(None, address, 64, tag, parameters)
    library.ucp_worker_progress(None)
    library.ucp_request_free(request)
    return address

small, segment, large = fill(), share(), bytearray(5 << 20)
inside = ctypes.addressof(ctypes.c_char.from_buffer(segment.buf, 4096))
time.sleep(1)
sent = [send(id(small[-1]) + 32, 0), send(inside, 1), send(ctypes.addressof(ctypes.c_char.from_buffer(large)), 2)]
print(json.dumps({'sent': sent, 'name': segment.name}), flush=True)
time.sleep(1)
import os
segment.unlink()
os._exit(0)
";

fn buffers() {
    let folder = Folder::new();
    let library = shared_library_named(&workload("ucp.c"), &folder.join("libucp.so.0"), &[]);
    let mut python = needs::python(VERSION).unwrap().inline(PROGRAM);
    python.arg(library);
    let recording = record("ucx,arena,shm").command(python).run();
    let line = recording.stdout.lines().find(|line| line.starts_with('{'));
    let printed = json::parse(line.unwrap_or_else(|| panic!("{}{}", recording.stdout, recording.stderr)));
    let transfers = json::list(&recording.report, "/transfers");
    let [small, shared, large] = transfers else { panic!("{transfers:#?}") };
    for (transfer, sent) in transfers.iter().zip(json::list(&printed, "/sent")) {
        assert_eq!(transfer["buffer"], format!("{:#x}", sent.as_u64().unwrap()), "{transfer:#}");
    }
    let (arena, function, line) = region(&recording, small, "arena", "/arenas");
    assert_eq!((function, program_line(line)), ("fill", "return [bytes(300) for _ in range(20_000)]"), "{small:#}");
    let address = u64::from_str_radix(json::text(arena, "/address").trim_start_matches("0x"), 16).unwrap();
    let sent = json::count(&printed, "/sent/0");
    assert!((address..address + json::count(arena, "/bytes")).contains(&sent), "{arena:#}");
    let (segment, function, line) = region(&recording, shared, "segment", "/segments");
    assert_eq!(function, "SharedMemory.__init__", "{shared:#}");
    let source = std::fs::read_to_string(json::text(shared, "/region/born_at/file")).unwrap();
    let asks = source.lines().nth(line - 1).unwrap();
    assert!(asks.contains("_posixshmem.shm_open("), "{asks} {shared:#}");
    assert!(json::text(segment, "/name").ends_with(json::text(&printed, "/name")), "{segment:#}");
    assert!(large["region"].is_null(), "{large:#}");
}

/// A line of the program, without its indentation.
fn program_line(line: usize) -> &'static str {
    PROGRAM.lines().nth(line - 1).unwrap().trim()
}

/// The report's entry for a transfer's region, and the function and the line in which the region was created.
fn region<'report>(
    recording: &'report Recording,
    transfer: &'report Value,
    kind: &str,
    list: &str,
) -> (&'report Value, &'report str, usize) {
    assert_eq!(transfer["region"]["kind"], kind, "{transfer:#}");
    let all = json::list(&recording.report, list);
    let own = all.iter().find(|it| it["id"] == transfer["region"]["id"]);
    let own = own.unwrap_or_else(|| panic!("{transfer:#}{all:#?}"));
    let line = usize::try_from(json::count(transfer, "/region/born_at/line")).unwrap();
    (own, json::text(transfer, "/region/born_at/function"), line)
}
