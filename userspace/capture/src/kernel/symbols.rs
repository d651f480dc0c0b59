//! Names of kernel addresses.

use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolizer};
use blazesym::{Addr, MaybeDefault};

use crate::cache::Cache;

/// Cached names; the least recently used are evicted.
const CACHE_MAX: usize = 16384;

/// Looks names up in `/proc/kallsyms`, which is read on first use.
pub struct Symbols {
    symbolizer: Symbolizer,
    names: Cache<u64, Arc<str>>,
    unknown: Arc<str>,
}

impl Default for Symbols {
    fn default() -> Self {
        Self { symbolizer: Symbolizer::new(), names: Cache::new(CACHE_MAX), unknown: Arc::from("kernel") }
    }
}

impl Symbols {
    /// The function at an address; `kernel` if the user may not see the kernel's symbols.
    pub fn name(&mut self, address: u64) -> Arc<str> {
        self.names.get(&address).unwrap_or(&self.unknown).clone()
    }

    /// Whether the name of `address` is cached.
    pub fn knows(&self, address: u64) -> bool {
        self.names.peek(&address).is_some()
    }

    /// Looks up names for new addresses.
    pub fn learn(&mut self, addresses: &[u64]) {
        let source = Source::Kernel(Kernel {
            kallsyms: MaybeDefault::Some(PathBuf::from("/proc/kallsyms")),
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        });
        let inputs: Vec<Addr> = addresses.iter().map(|address| *address as Addr).collect();
        let symbols = self.symbolizer.symbolize(&source, Input::AbsAddr(&inputs)).unwrap_or_default();
        for (index, address) in addresses.iter().enumerate() {
            let name =
                symbols.get(index).and_then(|symbolized| symbolized.as_sym()).map(|symbol| Arc::from(&*symbol.name));
            self.names.insert(*address, name.unwrap_or_else(|| Arc::clone(&self.unknown)));
        }
    }
}
