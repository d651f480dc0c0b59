//! The notation for where a value is found: a register, the memory it points to, or a sum.
//!
//! `arg1` to `arg6` are the function's arguments and `result` is its return value. `stack` is the address of
//! its return address, which the seventh argument follows. `[result + 16]` is the word at that address, and
//! `[[arg1 + 24] + 8]:u32` the four bytes at an offset from the address that such a word contains.

use pyobs_abi::arena::library::{READS_MAX, RESULT, STACK, Value};

/// On failure, returns the end of a sentence that says what is wrong.
pub fn parse(text: &str) -> Result<Value, String> {
    let (expression, bytes) = match text.trim().rsplit_once("]:") {
        Some((expression, width)) => (format!("{expression}]"), width_of(width.trim())?),
        None => (text.trim().to_owned(), 8),
    };
    let mut value = Value { bytes, ..Value::default() };
    sum(&expression, &mut value)?;
    if value.reads == 0 && bytes != 8 {
        return Err("only what is read of memory has a width".to_owned());
    }
    Ok(value)
}

fn width_of(width: &str) -> Result<u32, String> {
    match width {
        "u8" => Ok(1),
        "u16" => Ok(2),
        "u32" => Ok(4),
        "u64" => Ok(8),
        _ => Err(format!("`{width}` is no width; there are u8, u16, u32 and u64")),
    }
}

/// Parses `TERM`, `TERM + NUMBER` or `TERM - NUMBER`.
fn sum(text: &str, value: &mut Value) -> Result<(), String> {
    let text = text.trim();
    let end = text.rfind(']').map_or(0, |at| at + 1);
    let sign = text[end..].find(['+', '-']).map(|at| at + end);
    let (base, offset) = match sign {
        None => (text, 0),
        Some(at) => {
            let number = number(text[at + 1..].trim())?;
            (&text[..at], if text[at..].starts_with('-') { number.wrapping_neg() } else { number })
        }
    };
    term(base.trim(), value)?;
    value.offsets[value.reads as usize] = offset;
    Ok(())
}

fn term(text: &str, value: &mut Value) -> Result<(), String> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(|| format!("`{text}` has a `[` without its `]`"))?;
        sum(inner, value)?;
        if value.reads as usize == READS_MAX {
            return Err(format!("it reads memory more than {READS_MAX} times"));
        }
        value.reads += 1;
        return Ok(());
    }
    let argument = text.strip_prefix("arg").and_then(|number| number.parse::<u32>().ok());
    value.register = match argument {
        Some(number @ 1..=6) => number - 1,
        _ if text == "result" => RESULT,
        _ if text == "stack" => STACK,
        _ => return Err(format!("`{text}` is no register; there are arg1 to arg6, result and stack")),
    };
    Ok(())
}

fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse::<u32>().ok(),
    };
    number.map(u64::from).ok_or_else(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn value(text: &str) -> (u32, u32, u32, [u64; READS_MAX + 1]) {
        let value = parse(text).unwrap();
        (value.register, value.reads, value.bytes, value.offsets)
    }

    #[test]
    fn registers_memory_and_sums() {
        assert_eq!(value("arg1"), (0, 0, 8, [0; 4]));
        assert_eq!(value(" result "), (RESULT, 0, 8, [0; 4]));
        assert_eq!(value("[[[stack + 32]]]"), (STACK, 3, 8, [32, 0, 0, 0]));
        assert_eq!(value("arg6 - 16"), (5, 0, 8, [16_u64.wrapping_neg(), 0, 0, 0]));
        assert_eq!(value("[result+0x10]"), (RESULT, 1, 8, [16, 0, 0, 0]));
        assert_eq!(value("[[arg1 + 24] + 8]:u32"), (0, 2, 4, [24, 8, 0, 0]));
        assert_eq!(value("[[[arg2]] - 1] + 3"), (1, 3, 8, [0, 0, u64::MAX, 3]));
    }

    #[test]
    fn what_is_no_expression_says_what_is_wrong_with_it() {
        for (text, words) in [
            ("", "no register"),
            ("rdi", "no register"),
            ("arg0", "no register"),
            ("arg7", "no register"),
            ("arg+1", "no register"),
            ("[arg1", "without its `]`"),
            ("arg1]", "no register"),
            ("arg1 + x", "no number"),
            ("arg1 + 99999999999", "no number"),
            ("[arg1]:u24", "no width"),
            ("arg1:u8", "no register"),
            ("[[[[arg1]]]]", "more than 3"),
            ("[é + 1]", "no register"),
            ("]é-+", "no "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
