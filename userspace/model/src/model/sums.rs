//! The sums of all families.

use super::Model;
use crate::{History, Nanos, ProcessRef, families};

/// Makes the fields, and [`Model`]'s access to them.
macro_rules! sums {
    ($($name:ident: $module:ident::$type:ident,)*) => {
        #[derive(Debug)]
        pub(super) struct Sums {
            $(pub(super) $name: families::$module::$type,)*
        }

        impl Sums {
            pub(super) fn new(history: History) -> Self {
                Self { $($name: families::$module::$type::new(history),)* }
            }

            /// Forgets what is older than the model's window.
            pub(super) fn expire(&mut self, now: Nanos) {
                $(self.$name.expire(now);)*
            }

        }

        impl Model {
            $(pub fn $name(&self) -> &families::$module::$type {
                &self.sums.$name
            })*
        }
    };
}

impl Sums {
    /// Gives what is of one process to the one that stands for it. Segments have no processes, and the sites of MemInfos have a
    /// bound of their own.
    pub(super) fn rename(&mut self, known_as: &impl Fn(ProcessRef) -> ProcessRef) {
        self.cpu.rename(known_as);
        self.offcpu.rename(known_as);
        self.gil.rename(known_as);
        self.eval.rename(known_as);
        self.arenas.rename(known_as);
        self.ucx.rename(known_as);
        self.redundancy.rename(known_as);
    }
}

sums! {
    cpu: cpu::Cpu,
    offcpu: offcpu::OffCpu,
    gil: gil::Gil,
    eval: eval::Eval,
    arenas: arena::Arenas,
    shm: shm::Shm,
    nrt: nrt::Nrt,
    ucx: ucx::Ucx,
    redundancy: redundancy::Redundancy,
}
