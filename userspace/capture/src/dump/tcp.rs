//! TCP connections, as /proc lists those of a network namespace.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bounds the connections that are looked at.
const LINES_MAX: usize = 1_000_000;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub address: SocketAddr,
    /// The inode of its socket, if it is in the same network namespace.
    pub socket: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
    inode: u64,
}

/// The other end of the connection with this socket, in the network namespace of a process.
pub fn remote(pid: u32, inode: u64) -> Option<Remote> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
    let (old, new) = (read("tcp"), read("tcp6"));
    of(&connections(&old).chain(connections(&new)).collect::<Vec<_>>(), inode)
}

fn of(connections: &[Connection], inode: u64) -> Option<Remote> {
    let own = connections.iter().find(|connection| connection.inode == inode)?;
    let is_other = |other: &&Connection| other.local == own.remote && other.remote == own.local;
    let socket = connections.iter().find(is_other).map(|other| other.inode);
    Some(Remote { address: own.remote, socket })
}

/// `sl local remote state queues timer retransmits uid timeout inode …`
fn connections(text: &str) -> impl Iterator<Item = Connection> + '_ {
    let connection = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
        let inode = words.nth(6)?.parse().ok()?;
        Some(Connection { local, remote, inode })
    };
    text.lines().skip(1).take(LINES_MAX).filter_map(connection)
}

/// `0100007F:1F90`: the address in words of four bytes, each in the machine's order. An IPv4 address that is mapped into
/// IPv6 is the same as itself.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |index: usize| u32::from_str_radix(address.get(8 * index..8 * index + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (index, bytes) in bytes.chunks_mut(4).enumerate() {
                bytes.copy_from_slice(&word(index)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// For the fuzzer.
pub fn parse_all(text: &str) {
    let all: Vec<Connection> = connections(text).take(1000).collect();
    let _ = all.first().and_then(|first| of(&all, first.inode));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_found() {
        const HEAD: &str =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |local: &str, remote: &str, inode: u64| {
            format!(
                "   0: {local} {remote} 01 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000 20 4 30 10 -1\n"
            )
        };
        let old =
            [HEAD, &line("0100007F:1F90", "0100007F:C350", 7), &line("0100007F:C352", "08080808:0035", 9)].concat();
        let new =
            [HEAD, &line("0000000000000000FFFF00000100007F:C350", "0000000000000000FFFF00000100007F:1F90", 8)].concat();
        let all: Vec<Connection> = connections(&old).chain(connections(&new)).collect();
        let remote = |inode| of(&all, inode).map(|remote| (remote.address.to_string(), remote.socket));
        assert_eq!(remote(7), Some(("127.0.0.1:50000".to_owned(), Some(8))));
        assert_eq!(remote(8), Some(("127.0.0.1:8080".to_owned(), Some(7))));
        assert_eq!(remote(9), Some(("8.8.8.8:53".to_owned(), None)));
        assert_eq!(remote(10), None);
    }
}
