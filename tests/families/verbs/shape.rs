//! Checks the shape of a JSON document: every key, no other key, and each value's type.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Shape {
    Text,
    /// A whole number of 0 or more.
    Count,
    Number,
    Flag,
    OneOf(&'static [&'static str]),
    /// An object whose values are counts, with any keys.
    Counts,
    Nullable(Box<Shape>),
    List(Box<Shape>),
    Object(BTreeMap<&'static str, Shape>),
}

impl Shape {
    pub fn object(keys: impl IntoIterator<Item = (&'static str, Shape)>) -> Self {
        Self::Object(keys.into_iter().collect())
    }

    pub fn list(of: Shape) -> Self {
        Self::List(Box::new(of))
    }

    pub fn nullable(shape: Shape) -> Self {
        Self::Nullable(Box::new(shape))
    }

    pub fn with(mut self, key: &'static str, shape: Shape) -> Self {
        if let Self::Object(keys) = &mut self {
            keys.insert(key, shape);
        }
        self
    }

    #[track_caller]
    pub fn check(&self, document: &Value) {
        let mut wrong = Vec::new();
        self.compare("", document, &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn compare(&self, at: &str, value: &Value, wrong: &mut Vec<String>) {
        let fits = match (self, value) {
            (Self::Text, value) => value.is_string(),
            (Self::Count, value) => value.is_u64(),
            (Self::Number, value) => value.is_number(),
            (Self::Flag, value) => value.is_boolean(),
            (Self::OneOf(texts), value) => value.as_str().is_some_and(|text| texts.contains(&text)),
            (Self::Counts, value) => value.as_object().is_some_and(|counts| counts.values().all(Value::is_u64)),
            (Self::Nullable(_), Value::Null) => true,
            (Self::Nullable(shape), value) => return shape.compare(at, value, wrong),
            (Self::List(shape), Value::Array(items)) => {
                let each = |(index, item): (usize, &Value)| shape.compare(&format!("{at}/{index}"), item, wrong);
                return items.iter().enumerate().for_each(each);
            }
            (Self::Object(keys), Value::Object(members)) => {
                for (key, shape) in keys {
                    match members.get(*key) {
                        Some(member) => shape.compare(&format!("{at}/{key}"), member, wrong),
                        None => wrong.push(format!("{at}/{key} is missing")),
                    }
                }
                let unknown = members.keys().filter(|key| !keys.contains_key(key.as_str()));
                return wrong.extend(unknown.map(|key| format!("{at}/{key} is not in the contract")));
            }
            (Self::List(_) | Self::Object(_), _) => false,
        };
        if !fits {
            wrong.push(format!("{at} is {value}, not {self:?}"));
        }
    }
}
