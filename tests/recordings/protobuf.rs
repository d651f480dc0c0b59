//! Reads the fields of a protobuf message without its descriptor.

/// A field's number and its value.
pub type Field<'a> = (u64, Value<'a>);

#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number of any width.
    Number(u64),
    /// A text, or a message within this one.
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order in which they were written.
pub fn fields(mut message: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut message) as usize;
                Value::Bytes(take(&mut message, length))
            }
            5 => Value::Number(u32::from_le_bytes(take(&mut message, 4).try_into().unwrap()).into()),
            other => panic!("there is no wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

/// The numbers of a field that is repeated and packed.
pub fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(varint(&mut bytes));
    }
    numbers
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than ten bytes")
}
