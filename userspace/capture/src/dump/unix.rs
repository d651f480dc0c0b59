//! The other end of a Unix socket, which only the kernel's socket diagnostics name (sock_diag(7)). They know the sockets of
//! pyobs's own network namespace.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use crate::bytes::read;

/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST`, `UDIAG_SHOW_PEER` and `UNIX_DIAG_PEER`:
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/unix_diag.h>
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
/// `struct nlmsghdr`, and `struct unix_diag_msg` behind it.
const HEADER: usize = 16;
const MESSAGE: usize = 16;
/// `struct rtattr`.
const ATTRIBUTE: usize = 4;
/// Larger than any answer for one socket.
const ANSWER_MAX: usize = 4096;

/// Returns the inode of the socket that the socket with this inode is connected to.
pub fn peer(inode: u64) -> Option<u64> {
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG)).ok()?;
    send(&kernel, &request(inode.try_into().ok()?), SendFlags::empty()).ok()?;
    let mut answer = [0; ANSWER_MAX];
    // The kernel answers before `send` returns.
    let (length, _) = recv(&kernel, &mut answer, RecvFlags::DONTWAIT).ok()?;
    parse(answer.get(..length)?).map(u64::from)
}

/// A `struct nlmsghdr` and a `struct unix_diag_req` that asks for one socket in any state, with any cookie.
fn request(inode: u32) -> Vec<u8> {
    const LENGTH: u32 = 40;
    let kind = u32::from(BY_FAMILY) | u32::from(REQUEST) << 16;
    let family = u32::from(AddressFamily::UNIX.as_raw());
    let words = [LENGTH, kind, 0, 0, family, u32::MAX, inode, SHOW_PEER, u32::MAX, u32::MAX];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// The inode in the attribute `UNIX_DIAG_PEER` of an answer.
fn parse(answer: &[u8]) -> Option<u32> {
    let length = read::<u32>(answer, 0)? as usize;
    if read::<u16>(answer, 4)? != BY_FAMILY {
        return None;
    }
    let answer = answer.get(..length)?;
    let mut at = HEADER + MESSAGE;
    loop {
        let [size, kind] = [read::<u16>(answer, at)?, read::<u16>(answer, at + 2)?];
        if kind == PEER {
            return read(answer, at + ATTRIBUTE);
        }
        at += usize::from(size).max(ATTRIBUTE).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_of_a_pair_know_each_other() {
        let inode = |end: &UnixStream| std::fs::File::from(std::os::fd::OwnedFd::from(end.try_clone().unwrap()));
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [inode(&one), inode(&other)].map(|file| file.metadata().unwrap().ino());
        assert_eq!((peer(one), peer(other)), (Some(other), Some(one)));
        assert_eq!(peer(1), None);
    }

    #[test]
    fn a_cut_answer_has_no_peer() {
        let header = [40_u32, u32::from(BY_FAMILY), 0, 0, 0, 0, 0, 0, 8 | u32::from(PEER) << 16, 77];
        let answer: Vec<u8> = header.into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(parse(&answer), Some(77));
        for length in 0..answer.len() {
            assert_eq!(parse(&answer[..length]), None, "{length}");
        }
    }
}
