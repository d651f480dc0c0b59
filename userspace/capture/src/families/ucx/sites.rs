//! Where the probes of the family `ucx` belong.

use std::os::fd::OwnedFd;

use iced_x86::{Decoder, DecoderOptions, Register};
use pyobs_abi::ucx::{NOWHERE, ON_STACK, Submission, operation, site};

use super::Programs;
use crate::elf::{Elf, Symbol};
use crate::families::extension::{is_carried_out, returns};

/// What a library is, as far as it matters here; what depends on another comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// UCXX's own library and that for Python's futures.
    Ucxx,
    Ucp,
}

impl Of {
    /// By a mapping's name. Wheels give libraries names of their own behind these.
    pub(super) fn named(name: &str) -> Option<Self> {
        // The module of Cython's calls the library and has none of its functions.
        if name.starts_with("libucp") {
            Some(Self::Ucp)
        } else if name.starts_with("libucxx") && !name.contains(".abi3.") && !name.contains(".cpython-") {
            Some(Self::Ucxx)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    SubmitEnter,
    SubmitExit,
    Complete,
    Free,
    Message,
    Handler,
    Rendezvous,
    Ucxx,
}

impl Program {
    pub(super) fn of(self, programs: &Programs) -> &OwnedFd {
        match self {
            Self::SubmitEnter => &programs.submit_enter,
            Self::SubmitExit => &programs.submit_exit,
            Self::Complete => &programs.complete,
            Self::Free => &programs.free,
            Self::Message => &programs.message,
            Self::Handler => &programs.handler,
            Self::Rendezvous => &programs.rendezvous,
            Self::Ucxx => &programs.ucxx,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) program: Program,
    pub(super) address: u64,
    pub(super) cookie: u64,
}

/// The longest that a processor takes.
const INSTRUCTION_MAX: u64 = 15;

impl Site {
    /// Whether each transfer comes by, not only some kinds.
    fn is_frequent(self) -> bool {
        let is_of_several = matches!(self.cookie, site::MULTI_SEND | site::MULTI_RECV | site::MULTI_END);
        match self.program {
            Program::Ucxx => !is_of_several,
            Program::SubmitEnter | Program::Complete | Program::Free => true,
            Program::SubmitExit | Program::Message | Program::Handler | Program::Rendezvous => false,
        }
    }
}

/// Which argument is the buffer, which the count, the tag and the parameters (ucp/api/ucp.h).
const SUBMISSIONS: [(&str, Submission); 10] = [
    ("ucp_tag_send_nbx", Submission::new(operation::TAG_SEND, 1, 2, 3, 4)),
    ("ucp_tag_send_sync_nbx", Submission::new(operation::TAG_SEND, 1, 2, 3, 4)),
    ("ucp_tag_recv_nbx", Submission::new(operation::TAG_RECV, 1, 2, 3, 5)),
    ("ucp_tag_msg_recv_nbx", Submission::new(operation::TAG_RECV, 1, 2, NOWHERE, 4)),
    ("ucp_stream_send_nbx", Submission::new(operation::STREAM_SEND, 1, 2, NOWHERE, 3)),
    ("ucp_stream_recv_nbx", Submission::new(operation::STREAM_RECV, 1, 2, NOWHERE, 4)),
    ("ucp_am_send_nbx", Submission::new(operation::AM_SEND, 4, 5, NOWHERE, ON_STACK)),
    ("ucp_am_recv_data_nbx", Submission::new(operation::AM_RECV, 2, 3, NOWHERE, 4)),
    ("ucp_put_nbx", Submission::new(operation::PUT, 1, 2, NOWHERE, 5)),
    ("ucp_get_nbx", Submission::new(operation::GET, 1, 2, NOWHERE, 5)),
];
/// What gives requests back; the second is its former name.
const FREES: [&str; 2] = ["ucp_request_free", "ucp_request_release"];
/// What tells receivers of messages to come (ucp/tag/tag_rndv.c, ucp/am/rndv.c, ucp/rndv/rndv.c), and what begins to receive
/// one that it was told of (ucp/rndv/proto_rndv.c). They are in the symbol table of a file that is not stripped.
const ANNOUNCES: [&str; 4] = [
    "ucp_tag_rndv_rts_progress",
    "ucp_am_rndv_proto_progress",
    "ucp_proto_progress_tag_rndv_rts",
    "ucp_proto_progress_am_rndv_rts",
];
const RECEIVES: &str = "ucp_proto_rndv_receive_start";
/// It reads the status of a request, which is the first word of the library's own part of it.
const STATUS: &str = "ucp_request_check_status";
const CODE_MAX: u64 = 1 << 10;
const HANDLER: &str = "ucp_worker_set_am_recv_handler";

/// Calls whose ends UCXX tells of, where it `PUBLISHES`. It makes the others out of callbacks, too.
const PUBLISHED: [&str; 8] = [
    "ucp_tag_send_nbx",
    "ucp_tag_send_sync_nbx",
    "ucp_tag_recv_nbx",
    "ucp_stream_send_nbx",
    "ucp_stream_recv_nbx",
    "ucp_am_send_nbx",
    "ucp_put_nbx",
    "ucp_get_nbx",
];
const REGISTERS: &str = "ucxx::Worker::registerDelayedSubmission";
const PUBLISHES: &str = "ucxx::Request::publishRequest";

/// Functions of UCXX (cpp/include/ucxx, cpp/python/include/ucxx), what they are, and whether their ends matter. What is seen to
/// begin is then seen to end: registrations come behind what follows them.
const UCXX: [(&str, u64, bool); 11] = [
    ("ucxx::Request::setStatus", site::STATUS, false),
    ("ucxx::python::Future::set", site::WAKE, false),
    ("ucxx::python::Future::notify", site::NOTIFY, false),
    ("ucxx::python::Notifier::waitRequestNotifier", site::WAIT, false),
    ("ucxx::RequestTagMulti::send", site::MULTI_SEND, true),
    ("ucxx::RequestTagMulti::recvHeader", site::MULTI_RECV, true),
    ("ucxx::RequestTagMulti::recvFrames", site::MULTI_RECV, true),
    ("ucxx::RequestTagMulti::recvCallback", site::MULTI_RECV, true),
    (PUBLISHES, site::PUBLISH, false),
    (REGISTERS, site::REGISTER, false),
    (MESSAGE, site::REGISTER, false),
];
/// UCXX's handler of active messages.
const MESSAGE: &str = "ucxx::RequestAm::recvCallback";

/// Where a library's probes belong.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) always: Vec<Site>,
    /// What tells of ends: not there where transfers are only counted.
    pub(super) follow: Vec<Site>,
    /// Ends of calls of which a UCXX that publishes tells by itself: not there either.
    pub(super) ends: Vec<Site>,
    /// It is a UCXX that does.
    pub(super) publishes: bool,
    /// Whether the kernel carries out itself where the probes are that each transfer comes by, but for ends.
    pub(super) is_cheap: bool,
}

pub(super) fn of(of: Of, elf: &Elf<'_>) -> Sites {
    let mut sites = match of {
        Of::Ucp => of_ucp(elf),
        Of::Ucxx => of_ucxx(elf),
    };
    // Where a library's code ends, there are not as many bytes.
    let bytes = |site: &Site| (1..=INSTRUCTION_MAX).rev().find_map(|length| elf.bytes(site.address, length));
    let code = |site: &Site| bytes(site).unwrap_or_default();
    sites.is_cheap = sites
        .always
        .iter()
        .chain(&sites.follow)
        .filter(|site| site.is_frequent())
        .all(|site| is_carried_out(code(site)));
    sites
}

fn of_ucp(elf: &Elf<'_>) -> Sites {
    let (mut follow, mut published) = (Vec::new(), Vec::new());
    let mut frees: Vec<u64> = FREES.iter().filter_map(|name| elf.exported(name)).map(|it| it.address).collect();
    frees.dedup();
    let before = elf
        .exported(STATUS)
        .and_then(|symbol| elf.bytes(symbol.address, symbol.size.min(CODE_MAX)))
        .map_or(0, own_part);
    follow.extend(frees.into_iter().map(|address| Site { program: Program::Free, address, cookie: before }));
    let mut begins = Vec::new();
    for (name, submission) in SUBMISSIONS {
        let Some(symbol) = elf.exported(name) else { continue };
        let ends = returns(elf, symbol.address, symbol.size);
        // Without an end its beginning says nothing.
        if ends.is_empty() {
            continue;
        }
        let end = |address| Site { program: Program::SubmitExit, address, cookie: 0 };
        let own = if PUBLISHED.contains(&name) { &mut published } else { &mut follow };
        own.extend(ends.into_iter().map(end));
        begins.push(Site { program: Program::SubmitEnter, address: symbol.address, cookie: submission.0 });
    }
    if begins.is_empty() {
        return Sites::default();
    }
    if let Some(symbol) = elf.exported(HANDLER) {
        begins.push(Site { program: Program::Handler, address: symbol.address, cookie: 0 });
    }
    follow.extend(rendezvous(elf, before));
    Sites { always: begins, follow, ends: published, ..Sites::default() }
}

/// `before` is how long the library's own part of a request is.
fn rendezvous(elf: &Elf<'_>, before: u64) -> Vec<Site> {
    let site = |(name, symbol): (&[u8], Symbol)| {
        let cookie = match name {
            name if ANNOUNCES.iter().any(|known| known.as_bytes() == name) => 0,
            name if RECEIVES.as_bytes() == name && before != 0 => before,
            _ => return None,
        };
        elf.is_code(symbol.address).then_some(Site { program: Program::Rendezvous, address: symbol.address, cookie })
    };
    elf.symbols().filter_map(site).collect()
}

/// How long the library's own part of a request is, which lies before the address that the program knows: as far back as
/// the function reads from its argument. 0 where it does not.
fn own_part(code: &[u8]) -> u64 {
    const LENGTH_MAX: u64 = 4096;
    let instructions = Decoder::new(64, code, DecoderOptions::NONE).into_iter();
    let reads = instructions.filter(|it| it.memory_base() == Register::RDI && it.memory_index() == Register::None);
    let back = reads.map(|it| it.memory_displacement64().wrapping_neg());
    back.filter(|back| *back <= LENGTH_MAX).max().unwrap_or(0)
}

fn of_ucxx(elf: &Elf<'_>) -> Sites {
    let wanted: Vec<(String, &(&str, u64, bool))> = UCXX.iter().map(|it| (mangled(it.0), it)).collect();
    let has = |name: &str| {
        let wanted = mangled(name);
        elf.exported_symbols().any(|(name, symbol)| name.starts_with(wanted.as_bytes()) && elf.is_code(symbol.address))
    };
    let publishes = has(REGISTERS) && has(PUBLISHES);
    let (mut always, mut follow) = (Vec::new(), Vec::new());
    for (name, symbol) in elf.exported_symbols() {
        let known = wanted.iter().position(|(prefix, _)| name.starts_with(prefix.as_bytes()));
        let Some((place, (own, cookie, ends))) = known.map(|place| (place, wanted[place].1)) else { continue };
        let address = symbol.address;
        if *ends {
            let end = |address| Site { program: Program::Ucxx, address, cookie: site::MULTI_END };
            always.extend(returns(elf, address, symbol.size).into_iter().map(end));
            always.push(Site { program: Program::Ucxx, address, cookie: *cookie });
        } else if *own == MESSAGE {
            // A message that comes as a whole is not submitted by whoever receives it.
            always.push(Site { program: Program::Message, address, cookie: 1 });
        } else {
            let registers = publishes && *cookie == site::REGISTER;
            let cookie = if registers { site::REGISTER_PUBLISHED } else { *cookie };
            follow.push((place, Site { program: Program::Ucxx, address, cookie }));
        }
    }
    always.sort_by_key(|site| site.cookie != site::MULTI_END);
    follow.sort_by_key(|(place, _)| *place);
    let follow = follow.into_iter().map(|(_, site)| site).collect();
    Sites { always, follow, publishes, ..Sites::default() }
}

/// How the names of such functions begin in a library: all of the qualified name, whatever the arguments are
/// (the Itanium C++ ABI, 5.1.2).
fn mangled(qualified: &str) -> String {
    let parts = qualified.split("::").map(|part| format!("{}{part}", part.len()));
    format!("_ZN{}E", parts.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mangled_as_compilers_do() {
        assert_eq!(mangled("ucxx::Request::setStatus"), "_ZN4ucxx7Request9setStatusE");
        assert_eq!(mangled("ucxx::python::Future::set"), "_ZN4ucxx6python6Future3setE");
    }

    /// The function in libucp 1.21.0 of the package libucx-cu12, whose debug information says that sizeof(struct ucp_request)
    /// is 272.
    #[test]
    fn a_request_begins_where_its_status_is_read() {
        let code = [
            0xb8, 1, 0, 0, 0, 0xf6, 0x87, 0xf4, 0xfe, 0xff, 0xff, 1, 0x75, 2, 0xc3, 0x90, 0x0f, 0xb6, 0x87, 0xf0, 0xfe,
            0xff, 0xff, 0xc3,
        ];
        assert_eq!(own_part(&code), 272);
        assert_eq!(own_part(&code[..5]), 0);
        assert_eq!(own_part(&[]), 0);
    }

    #[test]
    fn libraries_are_told_from_modules() {
        let of = |name| Of::named(name);
        assert_eq!(of("libucp.so.0.0.0"), Some(Of::Ucp));
        assert_eq!(of("libucp-3f1c.so.0"), Some(Of::Ucp));
        assert_eq!(of("libucxx.so"), Some(Of::Ucxx));
        assert_eq!(of("libucxx_python.so"), Some(Of::Ucxx));
        assert_eq!(of("libucxx.abi3.so"), None);
        assert_eq!(of("libucxx.cpython-312-x86_64-linux-gnu.so"), None);
        assert_eq!(of("libuct.so.0"), None);
    }
}
