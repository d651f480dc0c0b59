//! Turns mangled names of C++ and Rust into source names.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer names are truncated: 200 mangled bytes can expand to gigabytes.
const NAME_MAX: usize = 1024;

pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Text up to a limit. Beyond it, writing fails, which stops the demangler.
#[derive(Default)]
struct Limited(String);

impl Limited {
    fn add(&mut self, text: &str) -> fmt::Result {
        let room = NAME_MAX - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text)
    }
}

/// The source name: without parameters and return type for C++, without the hash for Rust. `None` if the name
/// is not mangled.
pub fn demangle(name: &str) -> Option<String> {
    if !is_mangled(name) {
        return None;
    }
    let mut limited = Limited::default();
    if let Ok(symbol) = rustc_demangle::try_demangle(name) {
        // An error means the limit was reached.
        let _ = write!(limited, "{symbol:#}");
    } else {
        let symbol = Symbol::new(name).ok()?;
        let options = DemangleOptions::new().no_params().no_return_type();
        let end = symbol.structured_demangle(&mut limited, &options);
        if end.is_err() && limited.0.len() < NAME_MAX {
            return None;
        }
    }
    Some(limited.0).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers_become_those_of_the_source() {
        let names = [
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN5alpha4TreepLERKS0_", "alpha::Tree::operator+="),
            ("_ZN5alpha4TreeD4Ev", "alpha::Tree::~Tree"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ];
        for (name, source) in names {
            assert_eq!(demangle(name).as_deref(), Some(source));
        }
        for name in ["main", "_ZN", "_Z", "_R", "_Restore", "", "_ZN99999999999999999999E", "_Z1fIJT_T_EEvT_"] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_that_doubles_itself_again_and_again_is_cut() {
        // As a parameter in a function's name: P<A, A>, P<the first, the first>, P<the second, the second>,
        // and so on.
        let mut name = String::from("_ZN1F1fI1PI1AS1_E");
        for index in 2..35 {
            let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("S0_IS{digit}_S{digit}_E"));
        }
        name.push_str("EEvv");
        let made = demangle(&name).unwrap();
        assert!(made.starts_with("F::f<P<A, ") && made.len() == NAME_MAX, "{made}");
    }
}
