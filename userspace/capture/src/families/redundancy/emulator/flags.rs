//! The arithmetic flags, and the branch conditions that depend on them.

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::Machine;

/// Bits of rflags.
const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

impl Machine<'_> {
    pub(super) fn compute_flags(&mut self, of: &Instruction, first: Option<u64>, second: Option<u64>, bits: u32) {
        if of.rflags_modified() == 0 {
            return;
        }
        let bits = if of.op_kind(0) == OpKind::Memory { 8 * of.memory_size().size() as u32 } else { bits };
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let top = 1 << (bits.max(1) - 1);
        let same = of.op_count() > 1
            && of.op_kind(1) == OpKind::Register
            && of.op_kind(0) == OpKind::Register
            && of.op_register(0) == of.op_register(1);
        let logic = |value: u64| {
            let mut flags = 0;
            let value = value & mask;
            flags |= if value == 0 { ZERO } else { 0 };
            flags |= if value & top != 0 { SIGN } else { 0 };
            flags | if (value as u8).count_ones().is_multiple_of(2) { PARITY } else { 0 }
        };
        self.flags = match of.mnemonic() {
            Mnemonic::Xor if same => Some(logic(0)),
            Mnemonic::And | Mnemonic::Test => first.zip(second).map(|(a, b)| logic(a & b)),
            Mnemonic::Or => first.zip(second).map(|(a, b)| logic(a | b)),
            Mnemonic::Xor => first.zip(second).map(|(a, b)| logic(a ^ b)),
            Mnemonic::Cmp | Mnemonic::Sub => first.zip(second).map(|(a, b)| {
                let (a, b) = (a & mask, b & mask);
                let result = a.wrapping_sub(b) & mask;
                let overflow = (a ^ b) & (a ^ result) & top != 0;
                logic(result) | if a < b { CARRY } else { 0 } | if overflow { OVERFLOW } else { 0 }
            }),
            Mnemonic::Add => first.zip(second).map(|(a, b)| {
                let (a, b) = (a & mask, b & mask);
                let result = a.wrapping_add(b) & mask;
                let overflow = !(a ^ b) & (a ^ result) & top != 0;
                logic(result) | if result < a { CARRY } else { 0 } | if overflow { OVERFLOW } else { 0 }
            }),
            Mnemonic::Inc | Mnemonic::Dec => first.zip(self.flags).map(|(a, before)| {
                let is_inc = of.mnemonic() == Mnemonic::Inc;
                let result = if is_inc { a.wrapping_add(1) } else { a.wrapping_sub(1) } & mask;
                let overflow = if is_inc { result == top } else { a & mask == top };
                logic(result) | before & CARRY | if overflow { OVERFLOW } else { 0 }
            }),
            _ => None,
        };
    }

    pub(super) fn condition(&self, of: &Instruction) -> Option<bool> {
        use iced_x86::ConditionCode as C;
        if matches!(of.code(), Code::Jrcxz_rel8_64) {
            return self.registers[1].map(|count| count == 0);
        }
        let flags = self.flags?;
        let is = |bit: u64| flags & bit != 0;
        let less = is(SIGN) != is(OVERFLOW);
        Some(match of.condition_code() {
            C::o => is(OVERFLOW),
            C::no => !is(OVERFLOW),
            C::b => is(CARRY),
            C::ae => !is(CARRY),
            C::e => is(ZERO),
            C::ne => !is(ZERO),
            C::be => is(CARRY) || is(ZERO),
            C::a => !is(CARRY) && !is(ZERO),
            C::s => is(SIGN),
            C::ns => !is(SIGN),
            C::p => is(PARITY),
            C::np => !is(PARITY),
            C::l => less,
            C::ge => !less,
            C::le => less || is(ZERO),
            C::g => !less && !is(ZERO),
            C::None => return None,
        })
    }
}
