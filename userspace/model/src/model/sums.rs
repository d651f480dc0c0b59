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
    /// Reassigns everything of evicted processes. Segments belong to no process, and the sites of MemInfos have a bound of their
    /// own.
    pub(super) fn reassign(&mut self, resolve: &impl Fn(ProcessRef) -> ProcessRef) {
        self.cpu.reassign(resolve);
        self.offcpu.reassign(resolve);
        self.gil.reassign(resolve);
        self.eval.reassign(resolve);
        self.arenas.reassign(resolve);
        self.heap.reassign(resolve);
        self.ucx.reassign(resolve);
        self.redundancy.reassign(resolve);
    }
}

sums! {
    cpu: cpu::Cpu,
    offcpu: offcpu::OffCpu,
    gil: gil::Gil,
    eval: eval::Eval,
    arenas: arena::Arenas,
    heap: heap::Heap,
    shm: shm::Shm,
    nrt: nrt::Nrt,
    ucx: ucx::Ucx,
    redundancy: redundancy::Redundancy,
    tasks: tasks::Tasks,
    turns: turns::Turns,
    limits: limits::Groups,
    load: machine::Load,
}
