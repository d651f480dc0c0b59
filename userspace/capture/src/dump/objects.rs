//! Reads Python objects: type names, strings, ints, containers and attributes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;

use super::pages::Pages;
use crate::cpython::attached::Attached;
use crate::cpython::attributes::{self, Holds, Words};
use crate::memory::Memory;

/// No object lies in the first page.
const LOWEST: u64 = 4096;
/// Time limit for reading objects, and the number of reads between checks of it.
const TIME_MAX: Duration = Duration::from_secs(1);
const READS_BETWEEN: u32 = 256;
/// The longest name of a type.
const NAME_MAX: usize = 96;
/// The longest text.
const TEXT_MAX: u64 = 256;
/// Bounds the items of a container, and the attributes of an instance.
const ITEMS_MAX: u64 = 65_536;
const ATTRIBUTES_MAX: u64 = 256;
/// Offsets in `PyTypeObject`: `tp_basicsize`, `tp_flags` and `tp_dictoffset`.
const BASIC_SIZE: u64 = 32;
const FLAGS: u64 = 168;
const DICT_OFFSET: u64 = 288;
/// Behind an object's header.
const BODY: u64 = 16;

pub struct Objects<'a> {
    pub memory: &'a Pages,
    pub python: &'a Attached,
    names: RefCell<HashMap<u64, Arc<str>>>,
    /// The process may be hostile and build object graphs that take forever to read.
    deadline: Instant,
    reads: Cell<u32>,
}

/// Reads words for the layouts of dictionaries and attributes.
struct Reader<'a>(&'a Objects<'a>);

impl Words for Reader<'_> {
    fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.0.memory.read(address, bytes.as_flattened_mut()).ok()?;
        Some(bytes.map(u64::from_le_bytes))
    }

    fn minor(&self) -> u8 {
        self.0.minor()
    }
}

impl<'a> Objects<'a> {
    pub fn new(memory: &'a Pages, python: &'a Attached) -> Self {
        Self::within(TIME_MAX, memory, python)
    }

    /// With another time limit.
    pub fn within(limit: Duration, memory: &'a Pages, python: &'a Attached) -> Self {
        let deadline = Instant::now() + limit;
        Self { memory, python, names: RefCell::default(), deadline, reads: Cell::new(0) }
    }

    /// Whether the time limit has not been reached.
    pub fn has_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    pub fn minor(&self) -> u8 {
        self.python.number.minor
    }

    pub fn word(&self, address: u64) -> Option<u64> {
        self.reads.set(self.reads.get().wrapping_add(1));
        if self.reads.get().is_multiple_of(READS_BETWEEN) && !self.has_time() {
            return None;
        }
        self.memory.read_u64(address).ok()
    }

    /// Behind the header of an object.
    pub fn body(&self, object: u64) -> Option<u64> {
        object.checked_add(u64::from(self.python.layout.object.type_) + 8)
    }

    /// The name of an object's type, as `tp_name` has it.
    pub fn kind(&self, object: u64) -> Option<Arc<str>> {
        if object < LOWEST {
            return None;
        }
        let kind = self.word(object.checked_add(self.python.layout.object.type_.into())?)?;
        if let Some(known) = self.names.borrow().get(&kind) {
            return Some(Arc::clone(known));
        }
        // `tp_name` follows the size of a variable-sized object.
        let name = self.string(self.word(self.body(kind)?.checked_add(8)?)?).unwrap_or_default();
        let name: Arc<str> = Arc::from(name);
        self.names.borrow_mut().insert(kind, Arc::clone(&name));
        Some(name)
    }

    /// Reads a C string, truncated where memory ends.
    pub fn string(&self, address: u64) -> Option<String> {
        let mut bytes = [0; NAME_MAX];
        let mut length = NAME_MAX;
        while self.memory.read(address, &mut bytes[..length]).is_err() {
            length /= 2;
            if length == 0 {
                return None;
            }
        }
        let end = bytes[..length].iter().position(|byte| *byte == 0).unwrap_or(length);
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// A `str`, or a number as text.
    pub fn text(&self, object: u64) -> Option<String> {
        match &*self.kind(object)? {
            "str" => self.unicode(object),
            "int" => self.int(object).map(|number| number.to_string()),
            _ => None,
        }
    }

    /// A compact `str`.
    fn unicode(&self, object: u64) -> Option<String> {
        let unicode = &self.python.layout.unicode;
        let length = self.word(object.checked_add(unicode.length.into())?)?;
        let state = self.memory.read_u32(object.checked_add(unicode.state.into())?).ok()?;
        let is_ascii = state >> unicode.ascii_shift & 1 == 1;
        let data = if is_ascii { unicode.ascii_data } else { unicode.compact_data };
        let width = state >> unicode.kind_shift & 7;
        if !matches!(width, 1 | 2 | 4) || length > TEXT_MAX {
            return None;
        }
        let mut bytes = vec![0; length as usize * width as usize];
        self.memory.read(object.checked_add(data.into())?, &mut bytes).ok()?;
        let character = |bytes: &[u8]| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Some(bytes.chunks(width as usize).map(character).collect())
    }

    /// A small positive `int`: its size, then its digits (`PyLongObject`).
    pub fn int(&self, object: u64) -> Option<u64> {
        let body = self.body(object)?;
        let size = self.word(body)?;
        let digits = if self.minor() >= 12 { size >> 3 } else { size };
        let [low, high] = self.word(body.checked_add(8)?).map(|word| [word as u32, (word >> 32) as u32])?;
        match digits {
            0 => Some(0),
            1 => Some(low.into()),
            2 => Some(u64::from(low) | u64::from(high) << 30),
            _ => None,
        }
    }

    /// The value of a key in a dictionary whose keys are texts.
    pub fn item(&self, dict: u64, key: &str) -> Option<u64> {
        self.items(dict)?.into_iter().find(|(of, _)| self.text(*of).as_deref() == Some(key)).map(|(_, value)| value)
    }

    /// The keys and values of a dictionary.
    pub fn items(&self, dict: u64) -> Option<Vec<(u64, u64)>> {
        let (entries, values) = attributes::table(&mut Reader(self), dict)?;
        if values != 0 || entries.count > ITEMS_MAX {
            return None;
        }
        let pair = |index: u64| {
            let at = entries.first.checked_add(entries.size * index)?.checked_add(entries.key)?;
            Some((self.word(at)?, self.word(at.checked_add(8)?)?))
        };
        let pairs: Option<Vec<_>> = (0..entries.count).map(pair).collect();
        Some(pairs?.into_iter().filter(|(_, value)| *value != 0).collect())
    }

    /// The items of a `set`: `mask` and `table` of `PySetObject`, whose entries are a key and its hash.
    pub fn set(&self, set: u64) -> Option<Vec<u64>> {
        let body = self.body(set)?;
        let (mask, table) = (self.word(body.checked_add(16)?)?, self.word(body.checked_add(24)?)?);
        if mask >= ITEMS_MAX {
            return None;
        }
        let keys: Option<Vec<u64>> = (0..=mask).map(|index| self.word(table.checked_add(16 * index)?)).collect();
        // Deleted entries hold a dummy object. Callers check the types of the items.
        Some(keys?.into_iter().filter(|key| *key != 0).collect())
    }

    /// The items of a `list`.
    pub fn list(&self, list: u64) -> Option<Vec<u64>> {
        let body = self.body(list)?;
        self.array(self.word(body.checked_add(8)?)?, self.word(body)?)
    }

    /// The items of a `tuple`.
    pub fn tuple(&self, tuple: u64) -> Option<Vec<u64>> {
        let body = self.body(tuple)?;
        self.array(body.checked_add(self.python.number.tuple_items())?, self.word(body)?)
    }

    fn array(&self, first: u64, count: u64) -> Option<Vec<u64>> {
        if count > ITEMS_MAX {
            return None;
        }
        (0..count).map(|index| self.word(first.checked_add(8 * index)?)).collect()
    }

    /// The values of an instance's attributes.
    pub fn attributes(&self, object: u64) -> Option<Vec<u64>> {
        let kind = self.word(object.checked_add(self.python.layout.object.type_.into())?)?;
        let field = |offset: u64| self.word(kind.checked_add(offset)?);
        let (flags, size, dict) = (field(FLAGS)?, field(BASIC_SIZE)?, field(DICT_OFFSET)?);
        let holds = Holds { flags, size, dict: u64::try_from(dict as i64).unwrap_or(0) };
        attributes::of_instance(&mut Reader(self), object, holds, ATTRIBUTES_MAX)
    }

    /// The dictionary of a module (`PyModuleObject.md_dict`).
    pub fn module_dict(&self, module: u64) -> Option<u64> {
        if &*self.kind(module)? != "module" {
            return None;
        }
        self.word(module.checked_add(BODY)?)
    }
}
