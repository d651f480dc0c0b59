//! The running kernel's release.

/// As reported by uname(2).
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The release as (major, minor); zero for parts that cannot be parsed.
pub fn version() -> (u32, u32) {
    parse(&release())
}

fn parse(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok()).fuse();
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_any_vendor_have_a_version() {
        assert_eq!(parse("6.18.44-fc-v595"), (6, 18));
        assert_eq!(parse("5.10.0-28-amd64"), (5, 10));
        assert_eq!(parse("7.0-rc1"), (7, 0));
        assert_eq!(parse(""), (0, 0));
        assert_eq!(parse("99999999999999999999.1"), (0, 0));
    }
}
