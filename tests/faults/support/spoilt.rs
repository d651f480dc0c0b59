//! Makes files that are not recordings, or no longer valid ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pyobs_tests::command;
use rusqlite::Connection;

/// Pseudo-random numbers, the same in every run, so that a failure can be reproduced.
pub struct Numbers(u64);

impl Numbers {
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// xorshift64*, below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Files that cannot be read at all, each with its defect.
pub fn hopeless(recording: &Path, folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let bytes = fs::read(recording).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let newer = file("newer.pyobs", &bytes);
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 9999).unwrap();
    let database = folder.join("other.db");
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE samples (a); CREATE TABLE meta (b)").unwrap();
    let bare = folder.join("bare.db");
    Connection::open(&bare).unwrap().execute_batch("VACUUM").unwrap();
    let tables = file("without-tables.pyobs", &bytes);
    Connection::open(&tables).unwrap().execute_batch("DROP TABLE samples; DROP TABLE meta").unwrap();
    let looped = folder.join("loop.pyobs");
    symlink(&looped, &looped).unwrap();
    let pipe = folder.join("pipe.pyobs");
    assert!(command("mkfifo").arg(&pipe).status().unwrap().success());
    let socket = folder.join("socket.pyobs");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut headless = bytes.clone();
    headless[..16].fill(0);
    let mut pageless = bytes.clone();
    pageless[100..4096].fill(0xff);
    vec![
        ("empty", file("empty.pyobs", b"")),
        ("one byte", file("byte.pyobs", b"S")),
        ("SQLite's magic alone", file("magic.pyobs", b"SQLite format 3\0")),
        ("half a header", file("half.pyobs", &bytes[..50])),
        ("a header alone", file("header.pyobs", &bytes[..100])),
        ("without its magic", file("headless.pyobs", &headless)),
        ("without its first page", file("pageless.pyobs", &pageless)),
        ("of a newer version", newer),
        ("without its tables", tables),
        ("text", file("text.pyobs", b"to be, or not to be\n")),
        ("zeros", file("zeros.pyobs", &[0; 10_000])),
        ("an ELF file", pyobs_tests::pyobs()),
        ("another database", database),
        ("an empty database", bare),
        ("a folder", folder.to_owned()),
        ("a pipe", pipe),
        ("a socket", socket),
        ("/dev/null", "/dev/null".into()),
        ("/dev/zero", "/dev/zero".into()),
        ("a file of the kernel", "/proc/self/mem".into()),
        ("a loop of links", looped),
        ("missing", folder.join("missing.pyobs")),
        ("below a file", folder.join("text.pyobs/a.pyobs")),
        ("of a name that is too long", folder.join("x".repeat(300))),
    ]
}
