//! Tests with handwritten code.

use super::*;

fn run(code: &[u8], registers: [u64; 16], stack: &[u64]) -> Result<Access, NoAccess> {
    let mut machine = Machine::new(registers, 0x1000, 0, stack);
    machine.next_access(|at, into| {
        let from = (at as usize).checked_sub(0x1000).filter(|from| *from < code.len());
        let Some(from) = from else { return 0 };
        let length = into.len().min(code.len() - from);
        into[..length].copy_from_slice(&code[from..from + length]);
        length
    })
}

#[test]
fn the_first_access_beyond_the_stack_is_found() {
    let mut registers = [0; 16];
    (registers[4], registers[7], registers[1]) = (0x7fff_0000, 0x5000, 3);
    // mov rax, [rsp+8]; mov [rax+rcx*8], rdx
    let stack = [0, 0x9000];
    let store = run(&[0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x89, 0x14, 0xc8], registers, &stack);
    assert_eq!(store, Ok(Access { address: 0x9018, size: 8, reads: false, writes: true, is_float: false }));
    // movsd xmm0, [rdi+16]
    let load = run(&[0xf2, 0x0f, 0x10, 0x47, 0x10], registers, &[]);
    assert_eq!(load, Ok(Access { address: 0x5010, size: 8, reads: true, writes: false, is_float: true }));
}

#[test]
fn branches_follow_the_flags() {
    let mut registers = [0; 16];
    (registers[4], registers[7], registers[6], registers[1]) = (0x7fff_0000, 0x5000, 0x6000, 3);
    // cmp rcx, 3; jne +3; mov eax, [rdi] ; mov eax, [rsi]
    let code = [0x48, 0x83, 0xf9, 0x03, 0x75, 0x02, 0x8b, 0x07, 0x8b, 0x06];
    assert_eq!(run(&code, registers, &[]).map(|access| access.address), Ok(0x5000));
    registers[1] = 4;
    assert_eq!(run(&code, registers, &[]).map(|access| access.address), Ok(0x6000));
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let mut registers = [0; 16];
    registers[4] = 0x7fff_0000;
    // cvttsd2si rax, xmm0; mov rax, [rax]
    let unknown = run(&[0xf2, 0x48, 0x0f, 0x2c, 0xc0, 0x48, 0x8b, 0x00], registers, &[]);
    assert_eq!(unknown, Err(NoAccess::Unknown));
    // movaps [rsp], xmm0; mov rax, [rsp+8]; mov rax, [rax]
    let code = [0x0f, 0x29, 0x04, 0x24, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x8b, 0x00];
    assert_eq!(run(&code, registers, &[0x5000, 0x6000]), Err(NoAccess::Unknown));
    assert_eq!(run(&[0x06], registers, &[]), Err(NoAccess::Undecodable));
    assert_eq!(run(&[0xeb, 0xfe], registers, &[]), Err(NoAccess::TooFar));
}

#[test]
fn shifts_are_as_wide_as_their_register() {
    let mut registers = [0; 16];
    (registers[4], registers[7], registers[1]) = (0x7fff_0000, 0x5000, 3);
    // shl ecx, 33; mov eax, [rdi+rcx]
    let code = [0xc1, 0xe1, 0x21, 0x8b, 0x04, 0x0f];
    assert_eq!(run(&code, registers, &[]).map(|access| access.address), Ok(0x5006));
}
