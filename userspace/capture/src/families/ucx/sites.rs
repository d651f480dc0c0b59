//! Where the probes of the family `ucx` are attached.

use std::os::fd::OwnedFd;

use iced_x86::{Decoder, DecoderOptions, Register};
use pyobs_abi::ucx::{NOWHERE, ON_STACK, Submission, operation, site};

use super::Programs;
use crate::elf::{Elf, Symbol};
use crate::families::extension::{is_emulated, returns};

/// The kind of library. The order matters: a library comes before those it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// UCXX's own library, and the one for Python's futures.
    Ucxx,
    Ucp,
}

impl Of {
    /// Recognizes a library by its mapping's name. Wheels append a hash to these names.
    pub(super) fn named(name: &str) -> Option<Self> {
        // The Cython module calls the library but contains none of its functions.
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

/// Length of the longest x86 instruction.
const INSTRUCTION_MAX: u64 = 15;

impl Site {
    /// Whether every transfer passes here, not only some kinds.
    fn is_frequent(self) -> bool {
        let is_of_several = matches!(self.cookie, site::MULTI_SEND | site::MULTI_RECV | site::MULTI_END);
        match self.program {
            Program::Ucxx => !is_of_several,
            Program::SubmitEnter | Program::Complete | Program::Free => true,
            Program::SubmitExit | Program::Message | Program::Handler | Program::Rendezvous => false,
        }
    }
}

/// The numbers of the arguments for the buffer, the count, the tag and the parameters
/// (<https://github.com/openucx/ucx/blob/v1.17.0/src/ucp/api/ucp.h>).
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
/// Free requests; the second is the older name.
const FREES: [&str; 2] = ["ucp_request_free", "ucp_request_release"];
/// Functions that announce messages to receivers (ucp/tag/tag_rndv.c, ucp/am/rndv.c, ucp/rndv/rndv.c), and
/// that begin to receive an announced one (ucp/rndv/proto_rndv.c). Only the symbol table of an unstripped
/// file has them.
const ANNOUNCES: [&str; 4] = [
    "ucp_tag_rndv_rts_progress",
    "ucp_am_rndv_proto_progress",
    "ucp_proto_progress_tag_rndv_rts",
    "ucp_proto_progress_am_rndv_rts",
];
const RECEIVES: &str = "ucp_proto_rndv_receive_start";
/// Reads the status of a request, which is the first word of the library's private part.
const STATUS: &str = "ucp_request_check_status";
const CODE_MAX: u64 = 1 << 10;
const HANDLER: &str = "ucp_worker_set_am_recv_handler";

/// Calls whose ends UCXX reports if it `PUBLISHES`. It can turn its other calls into callbacks too.
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

/// Functions of UCXX (cpp/include/ucxx, cpp/python/include/ucxx), their roles, and whether their ends matter.
/// Later steps come first, so that every transfer seen to begin is seen to end too.
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

/// Where to attach a library's probes.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) always: Vec<Site>,
    /// Probes that follow transfers to their ends, removed while transfers are only counted.
    pub(super) follow: Vec<Site>,
    /// Ends of calls that a publishing UCXX reports itself; removed while transfers are only counted too.
    pub(super) ends: Vec<Site>,
    /// This library is a UCXX that publishes.
    pub(super) publishes: bool,
    /// Whether the kernel emulates the instructions at the probes that every transfer passes, except at ends.
    pub(super) is_cheap: bool,
}

pub(super) fn of(of: Of, elf: &Elf<'_>) -> Sites {
    let mut sites = match of {
        Of::Ucp => of_ucp(elf),
        Of::Ucxx => of_ucxx(elf),
    };
    // There are fewer bytes at the end of the library's code.
    let bytes = |site: &Site| (1..=INSTRUCTION_MAX).rev().find_map(|length| elf.bytes(site.address, length));
    let code = |site: &Site| bytes(site).unwrap_or_default();
    sites.is_cheap =
        sites.always.iter().chain(&sites.follow).filter(|site| site.is_frequent()).all(|site| is_emulated(code(site)));
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
        // Without its ends a beginning says nothing.
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

/// `before` is the size of the library's private part of a request.
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

/// Size of the library's private part of a request, which precedes the address that the program knows: as far
/// back as the function reads from its argument. 0 if it does not.
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
            // The receiver of a message that arrives in one piece has not submitted it.
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

/// The beginning of the mangled names of these functions: the full qualified name, with any arguments
/// (Itanium C++ ABI, 5.1.2).
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

    /// The function in libucp 1.21.0 of the package libucx-cu12, whose debug information gives sizeof(struct
    /// ucp_request) = 272.
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
    fn libraries_are_distinguished_from_modules() {
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
